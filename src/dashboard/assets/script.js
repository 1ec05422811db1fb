// Keeps the page up to date: fetches it again, and replaces the parts that changed. It preserves what the user is
// working with: the focus, the scroll position, open details, a selection and typed text.
"use strict";

(() => {
  const main = document.querySelector("main[data-refresh]");
  if (!main) return;
  const every = Number(main.dataset.refresh) * 1000;
  const live = document.getElementById("live");
  const at = document.getElementById("live-at");
  const button = document.getElementById("live-button");
  const status = document.getElementById("live-status");
  let paused = false;
  let failed = false;

  const say = (text) => {
    if (status.textContent !== text) status.textContent = text;
  };

  const isInUse = (part) => {
    const active = document.activeElement;
    if (part.contains(active) && active.matches("input, select, textarea")) return true;
    if (part.querySelector("details[open]")) return true;
    const selection = getSelection();
    return !selection.isCollapsed && selection.containsNode(part, true);
  };

  // The way from a part down to the element that has the focus, by index.
  const wayTo = (part, element) => {
    const way = [];
    for (let at = element; at !== part; at = at.parentElement) way.unshift([...at.parentElement.children].indexOf(at));
    return way;
  };

  const replace = (old, fresh) => {
    const active = document.activeElement;
    const way = old.contains(active) && active !== old ? wayTo(old, active) : null;
    const scrolled = [...old.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll(".scroll")].forEach((box, index) => {
      [box.scrollLeft, box.scrollTop] = scrolled[index] ?? [0, 0];
    });
    if (!way) return;
    const same = way.reduce((at, index) => at?.children[index], fresh);
    if (same?.tagName === active.tagName) same.focus({ preventScroll: true });
  };

  const update = async () => {
    const answer = await fetch(location.href, { redirect: "error", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const fresh of page.querySelectorAll("main [data-live]")) {
      const old = document.getElementById(fresh.id);
      if (old && !isInUse(old) && old.innerHTML !== fresh.innerHTML) replace(old, fresh);
    }
    at.textContent = "Updated " + new Date().toISOString().slice(11, 19) + " UTC";
  };

  const tick = async () => {
    if (!paused && !document.hidden) {
      try {
        await update();
        if (failed) say("The page is up to date again.");
        failed = false;
      } catch {
        failed = true;
        say("The page is not up to date: the server does not answer. It is asked again.");
      }
    }
    setTimeout(tick, failed ? every * 3 : every);
  };

  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    say(paused ? "Updates are paused." : "Updates are resumed.");
  });
  live.hidden = false;
  at.textContent = "Updated every " + main.dataset.refresh + " s";
  setTimeout(tick, every);
})();
