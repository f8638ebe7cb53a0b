//! Handlers: what they see, when they are called, and what a panic costs.

use astracer_baggage::{Application, Applications, Baggage, Namespace, Registry, View};

/// The rule of Pivot Tracing ("Pivot Tracing: Dynamic Causal Monitoring for Distributed Systems",
/// SOSP 2015, section 5): each branch writes to an active instance of its own. Active content
/// becomes inactive before a fork, and both are united after a join.
struct Pivot {
    active: Namespace,
    inactive: Namespace,
}

impl Application for Pivot {
    fn pre_split(&self, flow: &mut View<'_>) {
        flow.move_to(&self.active, &self.inactive);
    }

    fn post_merge(&self, flow: &mut View<'_>) {
        flow.move_to(&self.active, &self.inactive);
    }
}

#[test]
fn pivot_tracings_rule_is_an_application() {
    let registry = Registry::default();
    let active = registry.register("active", 0).unwrap();
    let inactive = registry.register("inactive", 0).unwrap();
    let rule = Pivot { active: active.clone(), inactive: inactive.clone() };
    let applications = Applications::new(&registry).with([active.clone(), inactive.clone()], rule);
    let values = |baggage: &Baggage, namespace: &Namespace| -> Vec<String> {
        let text = |value: &[u8]| value.escape_ascii().to_string();
        baggage.get(namespace, b"tuples").map(text).collect()
    };

    let mut flow = Baggage::new();
    flow.add(&active, b"tuples", b"before");
    let mut branch = applications.split(&mut flow, 1);
    assert_eq!(values(&flow, &inactive), ["before"]);
    assert_eq!(values(&branch, &inactive), ["before"]);
    flow.add(&active, b"tuples", b"left");
    branch.add(&active, b"tuples", b"right");
    assert_eq!(
        (values(&flow, &active), values(&branch, &active)),
        (vec!["left".into()], vec!["right".into()])
    );
    applications.merge(&mut flow, branch, 2);
    assert_eq!(values(&flow, &active), [""; 0]);
    assert_eq!(values(&flow, &inactive), ["before", "left", "right"]);
}

/// Writes to a namespace in each handler, and panics in the chosen one.
struct Panics {
    own: Namespace,
    other: Namespace,
    at: &'static str,
}

impl Panics {
    fn run(&self, handler: &str, view: &mut View<'_>) {
        view.add(&self.own, b"handlers", handler.as_bytes());
        view.add(&self.other, b"handlers", handler.as_bytes());
        view.replace(&self.other, b"k", [&b"w"[..]]);
        view.remove(&self.other, b"k");
        view.clear(&self.other);
        view.move_to(&self.other, &self.own);
        view.move_to(&self.own, &self.other);
        assert!(!view.has(&self.other, b"k"));
        assert_eq!(view.keys(&self.other).count() + view.get(&self.other, b"k").count(), 0);
        assert_ne!(handler, self.at, "expected");
    }
}

impl Application for Panics {
    fn pre_split(&self, flow: &mut View<'_>) {
        self.run("pre_split", flow);
    }
    fn post_split(&self, flow: &mut View<'_>, branch: &mut View<'_>) {
        branch.add(&self.own, b"handlers", b"post_split");
        self.run("post_split", flow);
    }
    fn pre_merge(&self, flow: &mut View<'_>, branch: &mut View<'_>) {
        branch.add(&self.own, b"handlers", b"pre_merge");
        self.run("pre_merge", flow);
    }
    fn post_merge(&self, flow: &mut View<'_>) {
        self.run("post_merge", flow);
    }
    fn pre_serialize(&self, flow: &mut View<'_>) {
        self.run("pre_serialize", flow);
    }
    fn post_deserialize(&self, flow: &mut View<'_>) {
        self.run("post_deserialize", flow);
    }
}

/// A panic costs the namespaces of its application, and nothing else.
#[test]
fn a_panic_in_any_handler_removes_its_namespaces() {
    for at in ["pre_split", "post_split", "pre_merge", "post_merge", "pre_serialize", "post_deserialize"] {
        let registry = Registry::default();
        let own = registry.register("own", 0).unwrap();
        let other = registry.register("other", 0).unwrap();
        let application = Panics { own: own.clone(), other: other.clone(), at };
        let applications = Applications::new(&registry).with([own.clone()], application);
        let mut flow = Baggage::new();
        flow.add(&other, b"k", b"v");
        let has = |baggage: &Baggage| baggage.get(&own, b"handlers").any(|handler| handler == at.as_bytes());

        let branch = applications.split(&mut flow, 1);
        assert!(!has(&flow) && !has(&branch), "{at}");
        applications.merge(&mut flow, branch, 0);
        assert!(!has(&flow), "{at}");
        let message = applications.serialize(&mut flow, 3_000, 0);
        let received = applications.deserialize(&message, 0).unwrap();
        assert!(!has(&flow) && !has(&received), "{at}");

        assert_eq!(registry.losses().panics, 1, "{at}");
        assert_eq!(received.get(&other, b"k").collect::<Vec<_>>(), [b"v"], "{at}");
        assert!(flow.has(&own, b"handlers") || at == "pre_serialize", "{at}");
    }
}

#[test]
fn handlers_get_the_time_and_refused_messages_reach_none() {
    struct Clock(Namespace);
    impl Application for Clock {
        fn post_split(&self, flow: &mut View<'_>, branch: &mut View<'_>) {
            assert_eq!(flow.now(), branch.now());
            let now = flow.now().to_string();
            branch.add(&self.0, b"now", now.as_bytes());
        }
        fn post_deserialize(&self, flow: &mut View<'_>) {
            flow.add(&self.0, b"arrived", b"");
        }
    }
    let registry = Registry::default();
    let own = registry.register("clock", 0).unwrap();
    let applications = Applications::new(&registry).with([own.clone()], Clock(own.clone()));
    let mut flow = Baggage::new();
    // The clock steps back.
    for now in [9, 7] {
        let branch = applications.split(&mut flow, now);
        assert_eq!(branch.get(&own, b"now").collect::<Vec<_>>(), [now.to_string().as_bytes()]);
    }
    assert!(applications.deserialize(b"", 0).unwrap().is_empty());
    assert!(applications.deserialize(b"\x0a", 0).is_err());
    assert_eq!(registry.losses().panics, 0);
}
