// Keeps the page up to date: fetches it again, and replaces the parts that changed. It preserves what the user is
// working with: the focus, the scroll position, open details, ticks, a selection and typed text. It sends forms in place,
// so that what came of a change is said where it was made, and loading the page again does not send it again.
"use strict";

(() => {
  const root = document.documentElement;
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const at = document.getElementById("live-at");
  const button = document.getElementById("live-button");
  const status = document.getElementById("live-status");
  const utc = () => new Date().toISOString().slice(11, 19) + " UTC";
  let last = utc();

  const say = (text, seconds) => {
    if (status.textContent !== text) status.textContent = text;
    if (seconds) setTimeout(() => status.textContent === text && say(""), seconds * 1000);
  };

  const load = async (address, options) => {
    const asked = { redirect: "manual", signal: AbortSignal.timeout(10000), ...options };
    const answer = await fetch(address, asked);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) return page;
    const away = answer.type === "opaqueredirect" && "the server leads elsewhere, perhaps to a login. Load the page again";
    throw { why: away || page.querySelector("main .notice")?.textContent || "the server says " + answer.status };
  };
  const why = (error) => (error.why ?? "the server does not answer").replace(/\.$/, "");

  const isInUse = (part) => {
    const active = document.activeElement;
    if (part.contains(active) && active.matches("input:not([type=checkbox]), select, textarea")) return true;
    if (part.querySelector("details[open], input:checked")) return true;
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
    const scrolled = [...old.querySelectorAll(".scroll, .message")].map((box) => [box.scrollLeft, box.scrollTop]);
    old.replaceWith(fresh);
    [...fresh.querySelectorAll(".scroll, .message")].forEach((box, index) => {
      [box.scrollLeft, box.scrollTop] = scrolled[index] ?? [0, 0];
    });
    if (!way) return;
    const same = way.reduce((at, index) => at?.children[index], fresh);
    if (same?.tagName === active.tagName) same.focus({ preventScroll: true });
    else main.focus({ preventScroll: true });
  };

  const update = async () => {
    const page = await load(location.href);
    for (const fresh of page.querySelectorAll("main [data-live]")) {
      const old = document.getElementById(fresh.id);
      if (old && !isInUse(old) && old.innerHTML !== fresh.innerHTML) replace(old, fresh);
    }
    last = utc();
    if (at) at.textContent = "Updated " + last;
  };

  // Ends what a form kept from being replaced, and keeps the focus near it.
  const close = (form) => {
    form.reset();
    for (const open of [form.closest("details[open]"), ...form.querySelectorAll("details[open]")]) {
      if (!open) continue;
      if (open.contains(document.activeElement)) open.querySelector("summary").focus();
      open.open = false;
    }
  };

  let busy = false;
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.getAttribute("method") !== "post") return;
    const body = new URLSearchParams(new FormData(form, event.submitter));
    event.preventDefault();
    if (busy) return;
    busy = true;
    try {
      const page = await load(form.getAttribute("action"), { method: "POST", body });
      say(page.getElementById("result")?.textContent ?? "Done.", 30);
      close(form);
      // The change is made, whether or not the page can be fetched again.
      await update().catch(() => {});
    } catch (error) {
      say("Not done, as far as is known: " + why(error) + ".");
    }
    busy = false;
  });

  // Without TLS, a browser has no clipboard, but it copies a selection.
  const put = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true);
    const active = document.activeElement;
    const field = document.body.appendChild(document.createElement("textarea"));
    field.value = text;
    field.className = "unseen";
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    active.focus({ preventScroll: true });
    return copied;
  };

  document.addEventListener("click", async (event) => {
    const { copy, tick } = event.target.dataset;
    if (copy !== undefined) {
      const copied = await put(copy).catch(() => false);
      say(copied ? "Copied." : "The browser did not copy it.", 5);
    }
    if (tick !== undefined) event.target.form.querySelectorAll(".tick").forEach((box) => { box.checked = tick === "all"; });
  });
  root.classList.add("scripted");
  if (!main.dataset.refresh) return;

  const every = Number(main.dataset.refresh) * 1000;
  let paused = false;
  let failed = false;
  const tick = async () => {
    if (!paused && !document.hidden) {
      try {
        await update();
        if (failed) say("The page is up to date again.", 30);
        failed = false;
      } catch (error) {
        failed = true;
        say("Not up to date since " + last + ": " + why(error) + ". It is asked again.");
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
