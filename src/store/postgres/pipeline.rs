//! Requests on one connection, sent together.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// A request. It sends when it is polled for the first time, and only then. Its parameters and columns are of built-in
/// types, because the driver asks the server about others, and that response would come behind those not polled yet.
pub(super) type Pending<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Requests that were sent. Their responses arrive in the order in which they were sent.
pub(super) struct Pipeline<'f, T>(VecDeque<Response<'f, T>>);

enum Response<'f, T> {
    Arrived(T),
    Pending(Pending<'f, T>),
}

impl<'f, T> Pipeline<'f, T> {
    /// Sends the requests.
    pub(super) async fn send(requests: Vec<Pending<'f, T>>) -> Self {
        let mut requests = requests.into_iter();
        poll_fn(|context| {
            let sent = requests.by_ref().map(|mut request| match request.as_mut().poll(context) {
                Poll::Ready(value) => Response::Arrived(value),
                Poll::Pending => Response::Pending(request),
            });
            Poll::Ready(Self(sent.collect()))
        })
        .await
    }

    /// Waits for the next response. The later ones are not polled meanwhile.
    pub(super) async fn next(&mut self) -> Option<T> {
        match self.0.pop_front()? {
            Response::Arrived(value) => Some(value),
            Response::Pending(request) => Some(request.await),
        }
    }
}

/// Sends the requests, and waits for all responses.
pub(super) async fn pipeline<T>(requests: Vec<Pending<'_, T>>) -> Vec<T> {
    let mut responses = Vec::with_capacity(requests.len());
    let mut sent = Pipeline::send(requests).await;
    while let Some(response) = sent.next().await {
        responses.push(response);
    }
    responses
}
