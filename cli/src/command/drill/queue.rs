//! The queue between the load and the exporter. The exporter waits for answers, and the load does
//! not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Scope;

use astracer_exporters::Destination;
use astracer_model::Span;

/// Spans in order of their arrival. A thread of the scope delivers them until this is dropped and
/// none is left.
pub(super) struct Queue {
    batches: Sender<Vec<Span<'static>>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Spans whose delivery has not begun.
    waiting: AtomicU64,
    /// Spans whose delivery has not ended.
    left: AtomicU64,
}

impl Queue {
    pub(super) fn begin<'scope>(
        scope: &'scope Scope<'scope, '_>,
        to: &'scope (dyn Destination + Sync),
    ) -> Self {
        let (batches, taken) = channel::<Vec<Span<'static>>>();
        let counts = Arc::<Counts>::default();
        let own = Arc::clone(&counts);
        scope.spawn(move || {
            while let Ok(mut spans) = taken.recv() {
                // As one request: otherwise a slow server would fall behind ever further.
                spans.extend(taken.try_iter().flatten());
                let count = spans.len() as u64;
                own.waiting.fetch_sub(count, Ordering::Relaxed);
                to.deliver(&spans);
                own.left.fetch_sub(count, Ordering::Release);
            }
        });
        Queue { batches, counts }
    }

    pub(super) fn push(&self, spans: Vec<Span<'static>>) {
        let count = spans.len() as u64;
        self.counts.waiting.fetch_add(count, Ordering::Relaxed);
        self.counts.left.fetch_add(count, Ordering::Relaxed);
        // The thread takes batches as long as this exists.
        let _ = self.batches.send(spans);
    }

    /// The number of spans whose delivery has not begun.
    pub(super) fn waiting(&self) -> u64 {
        self.counts.waiting.load(Ordering::Relaxed)
    }

    /// True if every delivery has ended.
    pub(super) fn is_done(&self) -> bool {
        self.counts.left.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use astracer_exporters::{Counter, Delivery, DeliveryReport, ExportError};

    use super::*;

    /// Sends the size of each request, and answers when it is told to.
    #[derive(Debug)]
    struct Slow {
        requests: Sender<usize>,
        answers: Mutex<Receiver<()>>,
    }

    impl Destination for Slow {
        fn deliver(&self, spans: &[Span<'_>]) -> DeliveryReport {
            self.requests.send(spans.len()).expect("the test receives it");
            self.answers.lock().expect("one thread").recv().expect("an answer");
            DeliveryReport::delivered(Delivery::new(spans.len() as u64, 0))
        }

        fn counter(&self) -> Counter {
            Counter::default()
        }

        fn shut_down(&self, _: Duration) -> Result<(), ExportError> {
            Ok(())
        }
    }

    /// While a request has no answer, the load goes on, and what it makes is the next request.
    #[test]
    fn a_load_does_not_wait_for_an_answer() {
        let ((requests, received), (answer, answers)) = (channel(), channel());
        let slow = Slow { requests, answers: Mutex::new(answers) };
        std::thread::scope(|scope| {
            let queue = Queue::begin(scope, &slow);
            let spans = |count: usize| vec![Span::default(); count];
            queue.push(spans(3));
            assert_eq!(received.recv(), Ok(3));
            assert_eq!((queue.waiting(), queue.is_done()), (0, false));
            (0..50).for_each(|_| queue.push(spans(2)));
            assert_eq!(queue.waiting(), 100);
            answer.send(()).expect("taken");
            assert_eq!(received.recv(), Ok(100));
            assert_eq!((queue.waiting(), queue.is_done()), (0, false));
            answer.send(()).expect("taken");
            // The end of the scope waits for what is left.
            queue.push(spans(1));
            answer.send(()).expect("taken");
        });
        assert_eq!(received.recv(), Ok(1));
    }
}
