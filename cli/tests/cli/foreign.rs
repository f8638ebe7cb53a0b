//! No text from a recording, a path or an argument can control the terminal.

use astracer_model::text::is_shown;
use astracer_samplers::parameters::Parameters;
use astracer_samplers::{Bump, Config, Nanos, PerKey, Probability};

use crate::outputs::Folder;
use crate::{Scratch, run, success};

/// Escape sequences of 7 and 8 bits, a direction override, a zero-width character, and a line end.
const NASTY: &str = "a\u{1b}[31m\u{9b}1m\u{202e}b\u{200b}\rc\u{7f}\u{2028}";
const NASTY_PATH: &str = "n\u{1b}[31m\u{9b}1m\u{202e}m\u{200b}\r.json\nfaked line";

/// True for characters that control a terminal, reorder text or have no width: Unicode's categories
/// Cc and Cf.
fn acts(char: char) -> bool {
    char.is_control() && char != '\n' || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
}

fn recording() -> String {
    let mut json = String::new();
    for char in NASTY.chars() {
        json.push_str(&format!("\\u{:04x}", u32::from(char)));
    }
    let span = |trace: u32, id: u32, name: &str, parent: &str| {
        format!(
            r#"{{"a":"000000000000000{trace}00000000000000{id:02}","b":{},"e":{},"d":"{name}","r":"{json}","p":[{parent}]}}"#,
            1000 * trace,
            1000 * trace + 10
        )
    };
    let name = format!("read(1001){json}\\nfaked line");
    [
        span(1, 11, &name, ""),
        span(2, 21, &name.replace("1001", "1002"), ""),
        // An orphan span, and a line that is not JSON, to cause problems.
        span(2, 22, &name, &format!(r#""{json}""#)),
        format!("{{\"a\":\"{NASTY}"),
    ]
    .join("\n")
}

#[test]
fn no_command_lets_a_recording_act_on_the_terminal() {
    let folder = Folder::new("foreign");
    let path = folder.file(NASTY_PATH, &recording());
    let (out, page, kept) = (folder.join("o\u{1b}.toml"), folder.join("p\u{1b}.html"), folder.join("k"));
    let html = folder.join("h\u{1b}.html");
    let graph = folder.join("g\u{1b}.html");
    let converted = folder.join("c\u{1b}.json");
    let missing = folder.join("missing\u{1b}[2J\n");
    let other = folder.file("other\u{1b}\nfaked line", &recording());
    let text = folder.file("no\u{1b}traces", "text");
    let sampler = "version = 2\n[bump]\nlambda = 1.0\n[bump.probability_by_key]\n";
    let keyed = folder.file("keyed.toml", &format!("{sampler}\"a\\u001B[2J\\nfaked line\" = 0.5\n"));
    let attribute = "version = 2\n[key]\nattributes = [\"\\u001B[2J\\nfaked line\"]\n[always]\n";
    let other_key = folder.file("other_key.toml", attribute);
    let unknown = folder.file("unknown.toml", "\"\\u001B[2J\\nfaked line\" = 1\n");
    let tune = ["tune", &path, "--size-max", "100%", "--iterations", "10", "--out", &out, "--report", &page];
    for args in [
        &["inspect", &path][..],
        &["inspect", &path, "--json"],
        &["inspect", &path, "--strict"],
        &["inspect", &path, "--names", "raw"],
        &["evaluate", &path, "--seeds", "1", "--sampler", "always", "--kept", &kept],
        #[cfg(target_os = "linux")]
        &["evaluate", &path, "--seeds", "1", "--sampler", "always", "--counts", "/dev/stdout"],
        &["evaluate", &path, "--seeds", "1", "--json"],
        &["evaluate", &path, "--sampler", NASTY],
        &["evaluate", &path, "--sampler", "always", "--kept", &missing],
        &["evaluate", &path, "--seeds", "1", "--parameters", &keyed],
        &["evaluate", &path, "--seeds", "1", "--parameters", &unknown],
        &tune,
        &[&tune[..], &["--json"]].concat(),
        &[&tune[..], &["--validate", &path]].concat(),
        &["critical-path", &path, "--folded", &kept],
        &["critical-path", &path, "--names", "raw", "--speedup", &format!("{NASTY}=1")],
        &["events", &path, "--trace", "1", "--html", &graph],
        &["events", &path, "--trace", "1", "--json"],
        &["events", &path, "--trace", "1", "--dot"],
        &["convert", &path, &converted],
        &["critical-path", &path],
        &["critical-path", &path, "--by", "path", "--json"],
        &["critical-path", &path, "--trace", "1"],
        &["critical-path", &path, "--root", NASTY],
        &["critical-path", &path, "--compare", &other, "--html", &html],
        &["tune", &path, "--size-max", "100%", "--iterations", "10", "--out", &out, "--validate", &other],
        &["evaluate", &other, "--seeds", "1"],
        &["convert", &path, &converted, "--json"],
        &["inspect", &missing],
        &["inspect", &text],
        &["inspect", &path, "--format", NASTY_PATH],
        &["inspect", &path, &format!("--{NASTY_PATH}")],
        &["inspect", &path, "--top", NASTY_PATH],
        &[NASTY_PATH],
        &["receive", "--out", &path, "--otlp", "127.0.0.1:0"],
        &["receive", "--out", &missing, "--otlp", &format!("{NASTY_PATH}:1")],
        &["send", &path, "--to", &format!("otlp://{NASTY_PATH}")],
        &["spool", "inspect", &path],
        &["evaluate", &path, "--seeds", "1", "--key", &format!("name+{NASTY_PATH}")],
        &["evaluate", &path, "--seeds", "1", "--tail", &format!("error,attr:{NASTY_PATH}")],
        &["evaluate", &path, "--seeds", "1", "--parameters", &other_key],
    ] {
        let output = run(args);
        for text in [String::from_utf8(output.stdout), String::from_utf8(output.stderr)] {
            let text = text.expect("UTF-8");
            let found = text.chars().find(|&char| acts(char));
            assert_eq!(found, None, "{args:?}: {text:?}");
            // No name may begin a line either.
            assert!(!text.lines().any(|line| line.starts_with("faked line")), "{args:?}: {text}");
        }
    }
    for page in [&page, &html, &graph, &kept, &out] {
        let page = std::fs::read_to_string(page).expect("written");
        assert_eq!(page.chars().find(|&char| acts(char) && char != '\t'), None);
    }
}

/// The line below each table used to print the whole name, which may be megabytes long.
#[test]
fn a_long_name_that_ids_were_folded_to_is_cut() {
    let name = "1234/".repeat(100_000);
    let span =
        format!(r#"{{"a":"00000000000000010000000000000011","b":1,"e":2,"d":"{name}","r":"p","p":[]}}"#);
    let input = Scratch::new("long-folded.json", &span);
    for command in [&["inspect"][..], &["evaluate", "--seeds", "1"], &["critical-path"]] {
        let text = success(&run(&[command, &[input.path()]].concat()));
        assert!(text.contains("ids: 1 name folded into 1, 1 of them into"), "{text}");
        let longest = text.lines().map(str::len).max();
        assert!(longest < Some(1_000), "{longest:?}");
    }
}

/// A parameters file names keys from recordings. The crate `samplers` has its own list of unsafe
/// characters, because it depends on no other crate of this workspace.
#[test]
fn a_parameters_file_shows_nothing_that_acts_on_a_terminal() {
    let bump = Bump::new(1.0, Probability::ONE, Nanos::from_millis(1_000)).expect("parameters in range");
    let key: String = ('\0'..=char::MAX).filter(|&char| !is_shown(char)).collect();
    let own = bump.clone().with_minimum(Probability::ZERO);
    let config = Config::Bump(PerKey::new(bump).with_override(&key, own));
    let parameters = Parameters { comments: vec![key], ..Parameters::new(config) };
    let text = parameters.to_string();
    let acting: Vec<_> = text.chars().filter(|&char| char != '\n' && !is_shown(char)).collect();
    assert!(acting.is_empty(), "{acting:?}");
    let read: Parameters = text.parse().expect("what was printed");
    assert_eq!(read.config, parameters.config);
}
