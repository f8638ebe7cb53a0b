//! Random programs: what services do to spans, as a list of steps, each on one of a few threads.
//!
//! A program is data. A step whose span or context does not exist does nothing. So every subset of
//! a program's steps is a program too, and a failing program is reduced by leaving out steps.

use std::fmt;

use astracer_testing::SplitMix;

/// Threads of a program.
pub(crate) const THREADS: usize = 3;
/// Places for span handles.
pub(crate) const SPANS: usize = 6;
/// Places for contexts.
pub(crate) const CONTEXTS: usize = 3;
/// Places for futures.
pub(crate) const FUTURES: usize = 2;

/// One operation on one thread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) thread: usize,
    pub(crate) op: Op,
}

/// An operation. Numbers are places of spans, contexts or futures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Begins a span. A handle in the same place is dropped.
    New {
        span: usize,
        template: Template,
        parent: Parent,
        subscriber: usize,
    },
    Enter(usize),
    /// The thread exits a span that it has entered: 0 is the last one, 1 the one before, and so on.
    Exit(usize),
    Clone {
        from: usize,
        to: usize,
    },
    Drop(usize),
    /// Forgets the handle, so that the span never ends.
    Leak(usize),
    Record(usize),
    Event {
        parent: Parent,
        error: bool,
        subscriber: usize,
    },
    Follows {
        span: usize,
        from: usize,
    },
    SetParent {
        span: usize,
        parent: Cx,
    },
    /// Reads a span's context, and stores it.
    Context {
        span: usize,
        to: usize,
    },
    Attach(Cx),
    /// The thread detaches a context that it has attached: 0 is the last one, 1 the one before, and
    /// so on.
    Detach(usize),
    SetAttribute(usize),
    SetStatus(usize, Mark),
    AddEvent(usize),
    AddLink(usize),
    /// Sets an attribute on the span of the current context.
    SetOnCurrent,
    /// Sets an attribute on the span of a stored context, perhaps after the span has ended.
    SetOnContext(usize),
    /// Creates a future instrumented with a span. A future in the same place is dropped.
    Spawn {
        future: usize,
        span: usize,
    },
    /// The thread polls a future, which may poll another one.
    Poll {
        future: usize,
        inside: Option<usize>,
    },
    /// Drops a future, finished or not.
    Cancel(usize),
    /// Calls `Handle::keep` for the trace of a stored context.
    Keep(usize),
    /// Calls `Handle::keep_where` for all traces of one kind.
    KeepWhere,
    /// Arms all keys.
    Arm,
    Flush,
    Shutdown,
}

impl Op {
    /// Whether ours differs from tracing-opentelemetry on purpose here: a name recorded late is
    /// used, events belong to the span entered last, and `Ok` is final from the beginning.
    fn is_meant_to_differ(&self) -> bool {
        matches!(self, Op::Record(_) | Op::Event { parent: Parent::Contextual, .. } | Op::SetStatus(..))
    }
}

/// The parent of a span or an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Parent {
    Contextual,
    None,
    Of(usize),
}

/// A status.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mark {
    Ok,
    Error,
}

/// A context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cx {
    Empty,
    Remote {
        sampled: bool,
    },
    /// A stored one.
    Kept(usize),
    /// The current one, with a tenant in its baggage.
    Tenant(u8),
}

/// A callsite of spans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Template {
    Plain,
    Fields,
    Late,
    Client,
    Server,
    Debug,
    DebugFields,
}

const TEMPLATES: [Template; 7] = {
    use Template::*;
    [Plain, Fields, Late, Client, Server, Debug, DebugFields]
};

/// The kind of program to generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Subscribers that spans may belong to.
    pub(crate) subscribers: usize,
    /// Handles may be leaked.
    pub(crate) leaks: bool,
    /// Only operations in which ours does not differ from tracing-opentelemetry on purpose.
    pub(crate) parity: bool,
    /// The layer may be shut down.
    pub(crate) shutdown: bool,
    /// `set_parent` may be called.
    pub(crate) set_parent: bool,
    /// Operations of late keeping occur.
    pub(crate) late: bool,
}

/// Generates programs in which most steps have an effect, by tracking which places are filled.
struct Generator<'a> {
    random: &'a mut SplitMix,
    shape: Shape,
    spans: [bool; SPANS],
    contexts: [bool; CONTEXTS],
    entered: [usize; THREADS],
    attached: [usize; THREADS],
}

/// Generates a program of 5 to 40 steps.
pub(crate) fn generate(random: &mut SplitMix, shape: Shape) -> Vec<Step> {
    let length = 5 + random.index(36);
    let mut generator = Generator {
        random,
        shape,
        spans: [false; SPANS],
        contexts: [false; CONTEXTS],
        entered: [0; THREADS],
        attached: [0; THREADS],
    };
    let mut thread = 0;
    let mut steps = Vec::with_capacity(length);
    while steps.len() < length {
        if generator.random.one_in(5) {
            thread = generator.random.index(THREADS);
        }
        match generator.op(thread) {
            Some(op) if shape.parity && op.is_meant_to_differ() => {}
            Some(Op::SetParent { .. }) if !shape.set_parent => {}
            Some(op) => steps.push(Step { thread, op }),
            _ => {}
        }
    }
    steps
}

impl Generator<'_> {
    fn op(&mut self, thread: usize) -> Option<Op> {
        let op = match self.random.index(108) {
            0..24 => {
                let span = self.random.index(SPANS);
                let template = TEMPLATES[self.random.index(TEMPLATES.len())];
                let parent = self.parent();
                self.spans[span] = true;
                Op::New { span, template, parent, subscriber: self.subscriber() }
            }
            24..44 => {
                self.entered[thread] += 1;
                Op::Enter(self.span()?)
            }
            44..58 => {
                let count = self.entered[thread].checked_sub(1)?;
                self.entered[thread] = count;
                // Mostly in order.
                Op::Exit(if self.random.one_in(4) { self.random.index(count + 1) } else { 0 })
            }
            58..60 => {
                let (from, to) = (self.span()?, self.random.index(SPANS));
                self.spans[to] = true;
                Op::Clone { from, to }
            }
            60..68 => {
                let span = self.span()?;
                self.spans[span] = false;
                if self.shape.leaks && self.random.one_in(10) { Op::Leak(span) } else { Op::Drop(span) }
            }
            68..71 => Op::Record(self.span()?),
            71..76 => Op::Event {
                parent: self.parent(),
                error: self.random.one_in(5),
                subscriber: self.subscriber(),
            },
            76..78 => Op::Follows { span: self.span()?, from: self.span()? },
            78..82 => {
                let span = self.span()?;
                Op::SetParent { span, parent: self.context() }
            }
            82..86 => {
                let (span, to) = (self.span()?, self.random.index(CONTEXTS));
                self.contexts[to] = true;
                Op::Context { span, to }
            }
            86..90 => {
                self.attached[thread] += 1;
                Op::Attach(self.context())
            }
            90..93 => {
                let count = self.attached[thread].checked_sub(1)?;
                self.attached[thread] = count;
                Op::Detach(if self.random.one_in(4) { self.random.index(count + 1) } else { 0 })
            }
            93 => Op::SetAttribute(self.span()?),
            94 => Op::SetStatus(self.span()?, if self.random.one_in(2) { Mark::Ok } else { Mark::Error }),
            95 => Op::AddEvent(self.span()?),
            96 => Op::AddLink(self.span()?),
            97 => Op::SetOnCurrent,
            98 => Op::SetOnContext(self.random.index(CONTEXTS)),
            99 if self.shape.late => match self.random.index(8) {
                0 => Op::Arm,
                1 | 2 => Op::KeepWhere,
                _ => Op::Keep(self.random.index(CONTEXTS)),
            },
            100..102 => Op::Spawn { future: self.random.index(FUTURES), span: self.span()? },
            102..106 => {
                let inside = self.random.one_in(2).then(|| self.random.index(FUTURES));
                Op::Poll { future: self.random.index(FUTURES), inside }
            }
            106 => Op::Cancel(self.random.index(FUTURES)),
            107 if self.shape.shutdown && self.random.one_in(4) => Op::Shutdown,
            _ => Op::Flush,
        };
        Some(op)
    }

    fn subscriber(&mut self) -> usize {
        self.random.index(self.shape.subscribers)
    }

    /// A random filled place.
    fn span(&mut self) -> Option<usize> {
        let filled = self.spans.iter().filter(|filled| **filled).count();
        if filled == 0 {
            return None;
        }
        let nth = self.random.index(filled);
        (0..SPANS).filter(|place| self.spans[*place]).nth(nth)
    }

    fn parent(&mut self) -> Parent {
        match self.random.index(10) {
            0 => Parent::None,
            1 | 2 => self.span().map_or(Parent::None, Parent::Of),
            _ => Parent::Contextual,
        }
    }

    fn context(&mut self) -> Cx {
        match self.random.index(10) {
            0 => Cx::Empty,
            1 | 2 => Cx::Remote { sampled: true },
            3 => Cx::Remote { sampled: false },
            4 | 5 => Cx::Tenant(self.random.index(3) as u8),
            _ => Cx::Kept(self.random.index(CONTEXTS)),
        }
    }
}

/// Reduces `steps` while `fails` still returns true: leaves out chunks first, then single steps.
pub(crate) fn shrink(mut steps: Vec<Step>, fails: &mut dyn FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut chunk = steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = steps.len();
        while at < steps.len() {
            let mut rest = steps[..at].to_vec();
            rest.extend_from_slice(&steps[(at + chunk).min(steps.len())..]);
            if fails(&rest) {
                steps = rest;
            } else {
                at += chunk;
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2).min(chunk - 1);
        } else if steps.len() == before {
            return steps;
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}: {:?}", self.thread, self.op)
    }
}
