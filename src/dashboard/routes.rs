//! The addresses of the pages, and how requests for them are served.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderValue, StatusCode, header, request::Parts};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use super::answer::{asset, html, secure};
use super::cache::{Cache, Rendered};
use super::forgery::{Secret, cookie, new_cookie};
use super::page::{self, Look, Page, View};
use super::params::Params;
use super::trouble::Trouble;
use super::{Dashboard, change};

/// How many pages are computed at once. It leaves the store available for the host's own work.
const AT_ONCE: usize = 4;

/// The state that all requests share.
#[derive(Debug)]
pub(super) struct App {
    pub(super) board: Dashboard,
    pub(super) secret: Secret,
    pub(super) cache: Cache,
    turns: Arc<Semaphore>,
}

pub(super) fn router(board: Dashboard) -> Router {
    let app = App {
        board,
        secret: Secret::new(),
        cache: Cache::default(),
        turns: Arc::new(Semaphore::new(AT_ONCE)),
    };
    let mut router = Router::new()
        .route("/", get(first))
        .route("/change", post(change::answer))
        .route("/style.css", get(|| asset("text/css; charset=utf-8", include_str!("assets/style.css"))))
        .route(
            "/script.js",
            get(|| asset("text/javascript; charset=utf-8", include_str!("assets/script.js"))),
        )
        .route("/icon.svg", get(|| asset("image/svg+xml", include_str!("assets/icon.svg"))));
    for (path, view, age) in page::ALL {
        router = router.route(
            path,
            get(move |State(app): State<Arc<App>>, request: Request| look(app, view, age, request)),
        );
    }
    router.fallback(other).with_state(Arc::new(app)).layer(axum::middleware::map_response(secure))
}

/// Redirects to the first page, relative to the requested address, so that it works behind any proxy.
async fn first(OriginalUri(asked): OriginalUri) -> Response {
    let folder = asked.path().rsplit('/').next().unwrap_or_default();
    let to = if folder.is_empty() { "overview".to_owned() } else { format!("{folder}/overview") };
    match HeaderValue::from_str(&to) {
        Ok(to) => (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn other() -> Response {
    let trouble = Trouble::missing("There is no such page.");
    html(trouble.status, page::trouble(&trouble))
}

async fn look(app: Arc<App>, view: View, age: Duration, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let may_change = app.who(&parts).is_some();
    let query = parts.uri.query().unwrap_or_default();
    let address = format!("{} {}?{query}", u8::from(may_change), parts.uri.path());
    let params = Params::of(query.as_bytes());
    let compute = async {
        let page = app.ask(may_change, params, view).await;
        match page {
            Ok(page) => Rendered { status: page.status, body: page::whole(page) },
            Err(trouble) => Rendered { status: trouble.status, body: page::trouble(&trouble) },
        }
    };
    let rendered = app.cache.get(address, age, compute).await;
    if !may_change {
        return html(rendered.status, rendered.body.clone());
    }
    let (value, fresh) = match cookie(&parts.headers) {
        Some(value) => (value.to_owned(), None),
        None => {
            let (value, header) = new_cookie();
            (value, HeaderValue::from_str(&header).ok())
        }
    };
    let body = rendered.body.replace(app.secret.place(), &app.secret.mark(&value));
    let mut response = html(rendered.status, body);
    if let Some(fresh) = fresh {
        response.headers_mut().insert(header::SET_COOKIE, fresh);
    }
    response
}

impl App {
    /// Returns the user who sent the request, if that user may change something.
    pub(super) fn who(&self, parts: &Parts) -> Option<String> {
        self.board.who.as_ref().and_then(|who| who(parts))
    }

    /// Computes a page on a thread that may block.
    async fn ask(self: &Arc<Self>, may_change: bool, params: Params, view: View) -> Result<Page, Trouble> {
        let app = Arc::clone(self);
        self.blocking(move || {
            let look = Look {
                store: app.board.store.as_ref(),
                now: app.board.clock.now(),
                params: &params,
                mark: may_change.then(|| app.secret.place()),
                shows_payloads: app.board.shows_payloads,
            };
            view(&look)
        })
        .await
    }

    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        // The semaphore is never closed, and the work does not panic, but neither is worth a panic here.
        let failed = || Trouble::new(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be computed.");
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| failed())?;
        let work = move || {
            // Even if the reader goes away, the work continues, so it keeps the turn.
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| failed())?
    }
}
