//! The pages step: Chromium opens every page, with plain, foreign and missing names, on a desk and
//! on a phone, light and dark.
//!
//! No page may overflow its window, raise an error or ask for anything but itself. On the first
//! screen are the answer, its picture and a command. `release` also checks each page with axe-core.
//! Pictures of all states are in `target/pages`, for people to look at.

mod chromium;
mod live;
mod recordings;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::built::Built;
use crate::metadata::{Metadata, Package};
use crate::step_result::{Options, StepResult};
use crate::{program, tool};
use chromium::Chromium;
use recordings::Names;

const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Widths and heights of the windows.
const SIZES: [(u32, u32); 2] = [(1_200, 900), (390, 844)];
const AXE: &str = "axe-core@4.11.0";
/// The largest page of a recording in `workloads`, and of 20,000 events, in bytes.
const PAGE_MAX: u64 = 1_000_000;
const ORDER_MAX: u64 = 4_000_000;
/// The page of 20,000 events is drawn within this time, in ms.
const OPEN_MAX: f64 = 2_000.0;

/// The command-line tool is run, and the live page's files are read.
pub(crate) fn builds(package: &Package) -> Built {
    Built::program_if(package.name == "astracer-cli")
}

pub(crate) fn run(root: &Path, options: Options) -> StepResult {
    let Some(browser) = PROGRAMS.into_iter().find(|name| tool::require(name, name, false).is_ok()) else {
        return match tool::require(PROGRAMS[0], "chromium", options.install) {
            Ok(()) => run_in(root, PROGRAMS[0], options),
            Err(error) => StepResult::Skipped(error),
        };
    };
    run_in(root, browser, options)
}

fn run_in(root: &Path, browser: &str, options: Options) -> StepResult {
    match open_all(root, browser, options) {
        Ok((faults, _)) if !faults.is_empty() => {
            faults.iter().for_each(|fault| eprintln!("error: {fault}"));
            StepResult::Failed
        }
        Ok((_, Some(skipped))) => StepResult::Skipped(skipped),
        Ok(_) => StepResult::Passed,
        Err(error) => StepResult::of(Err(error)),
    }
}

/// A page to open.
struct Opened {
    name: String,
    url: String,
    /// Names of ordinary length, so that the first screen has room.
    is_plain: bool,
}

/// The faults of all pages, and the reason if axe-core was not run though it should.
fn open_all(root: &Path, browser: &str, options: Options) -> Result<(Vec<String>, Option<String>), String> {
    let tool = program::build(root, "build -p astracer-cli --locked")?;
    let folder = PathBuf::from(Metadata::load(root)?.target_directory).join("pages");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut faults = Vec::new();
    let mut pages = Vec::new();
    for names in Names::ALL {
        pages.extend(written(&tool, &folder, names)?);
        let url = live::serve(root, names)?;
        pages.push(Opened { name: format!("live-{}", names.label()), url, is_plain: names == Names::Plain });
    }
    let is_full = options.full || std::env::var_os("ASTRACER_FULL").is_some();
    let axe = if is_full { axe(&folder) } else { Ok(None) };
    let (axe, skipped) = match axe {
        Ok(axe) => (axe, None),
        Err(error) => (None, Some(error)),
    };
    let mut chromium = Chromium::start(browser, &folder.join("profile"))?;
    for page in &pages {
        for (width, height) in SIZES {
            for scheme in ["light", "dark"] {
                let state = State { page, width, height, scheme, axe: axe.as_deref() };
                let picture = folder.join(format!("{}-{width}-{scheme}.png", page.name));
                faults.extend(state.open(&mut chromium, &picture)?);
            }
        }
    }
    faults.extend(large(root, &tool, &folder, &mut chromium)?);
    println!("{} pages, pictures in {}", pages.len(), folder.display());
    Ok((faults, skipped))
}

/// Writes the pages of a recording with these names.
fn written(tool: &Path, folder: &Path, names: Names) -> Result<Vec<Opened>, String> {
    let file = |name: &str, text: &str| {
        let path = folder.join(format!("{}-{name}", names.label()));
        fs::write(&path, text).map(|()| path.display().to_string()).map_err(|error| error.to_string())
    };
    let spans = file("spans.jsonl", &recordings::spans(names, false))?;
    let other = file("other.jsonl", &recordings::spans(names, true))?;
    let events = file("events.jsonl", &recordings::events(names, 400))?;
    let parameters = folder.join("found.toml").display().to_string();
    let mut pages = Vec::new();
    for (name, args) in [
        (
            "tune",
            &["tune", &spans, "--iterations", "20", "--size-max", "30%", "--out", &parameters, "--report"][..],
        ),
        ("compare", &["compare", &spans, "--bad-slowest", "10%", "--html"]),
        ("runs", &["compare", "--good", &spans, "--bad", &other, "--html"]),
        ("path", &["critical-path", &spans, "--html"]),
        ("path-compare", &["critical-path", &spans, "--compare", &other, "--html"]),
        ("events", &["events", &spans, "--trace", "1", "--html"]),
        ("order", &["order", &events, "--html"]),
    ] {
        let path = folder.join(format!("{name}-{}.html", names.label()));
        call(tool, args, &path)?;
        let name = format!("{name}-{}", names.label());
        pages.push(Opened {
            name,
            url: format!("file://{}", path.display()),
            is_plain: names == Names::Plain,
        });
    }
    Ok(pages)
}

fn call(tool: &Path, args: &[&str], page: &Path) -> Result<(), String> {
    let output = Command::new(tool).args(args).arg(page).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", tool.display()))?;
    if output.status.success() && page.is_file() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("astracer {} failed: {}", args.join(" ").chars().take(200).collect::<String>(), error.trim()))
}

/// axe-core's script, from npm.
fn axe(folder: &Path) -> Result<Option<String>, String> {
    tool::require("npm", "npm", false)?;
    let folder = folder.join("axe");
    let install = ["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
    let status = Command::new("npm").args(install).arg(&folder).arg(AXE).stdout(Stdio::null()).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(format!("npm cannot install {AXE}"));
    }
    let script = folder.join("node_modules/axe-core/axe.min.js");
    fs::read_to_string(script).map(Some).map_err(|error| format!("{AXE}: {error}"))
}

/// A page in one window.
struct State<'s> {
    page: &'s Opened,
    width: u32,
    height: u32,
    scheme: &'static str,
    axe: Option<&'s str>,
}

/// The elements that are wider than the window, except inside of parts that scroll by themselves.
const OVERFLOWING: &str = "(() => {
  if (document.documentElement.scrollWidth <= innerWidth) return '';
  const scrolls = (node) => node && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
  const wide = [...document.body.querySelectorAll('*')].filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !scrolls(node.parentElement));
  return `${document.documentElement.scrollWidth} px wide: ` + wide.slice(0, 3).map((node) => `${node.tagName} ${node.className?.baseVal ?? node.className}`).join(', ');
})()";
/// The parts of the answer that end below the window.
const BELOW: &str = "['h1', '.answer svg, .figures', '.next code'].filter((part) => {
  const node = document.querySelector(part);
  return node ? node.getBoundingClientRect().bottom > innerHeight : part !== '.next code';
}).join(' and ')";
const UNFOLD: &str = "document.querySelectorAll('details').forEach((node) => { node.open = true; })";
const VIOLATIONS: &str = "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
  .filter((of) => ['serious', 'critical'].includes(of.impact))
  .map((of) => `${of.id} (${of.impact}): ${of.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' ; ')}`))";

/// Moves and zooms the diagram for 90 frames.
const FRAMES: &str = "new Promise((done) => {
  const times = [], view = document.getElementById('view');
  let last = performance.now();
  const frame = (now) => {
    times.push(now - last);
    last = now;
    view.dispatchEvent(new WheelEvent('wheel', { deltaY: 40, shiftKey: times.length < 60, ctrlKey: times.length >= 60, cancelable: true }));
    if (times.length < 90) return requestAnimationFrame(frame);
    times.sort((a, b) => a - b);
    done(`${times[45].toFixed(0)} ms a frame, at most ${times[89].toFixed(0)} ms`);
  };
  requestAnimationFrame(frame);
})";

impl State<'_> {
    /// Opens the page and takes its picture. Returns its faults.
    fn open(&self, chromium: &mut Chromium, picture: &Path) -> Result<Vec<String>, String> {
        let of = format!("{} at {} px, {}", self.page.name, self.width, self.scheme);
        let size =
            json!({ "width": self.width, "height": self.height, "deviceScaleFactor": 1, "mobile": false });
        chromium.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = json!([{ "name": "prefers-color-scheme", "value": self.scheme }]);
        chromium.call("Emulation.setEmulatedMedia", json!({ "features": scheme }))?;
        chromium.open(&self.page.url)?;
        // The live page has rates after its second answer.
        let pause = if self.page.url.starts_with("http") { 1_000 } else { 100 };
        chromium.value(&format!("new Promise((done) => setTimeout(done, {pause}))"))?;
        let mut faults = Vec::new();
        let mut check = |what: &str, found: Value| match found.as_str() {
            Some("") => {}
            _ => faults.push(format!("{of}: {what} {found}")),
        };
        check("overflows:", chromium.value(OVERFLOWING)?);
        if self.page.is_plain {
            check("the first screen lacks", chromium.value(BELOW)?);
        }
        let taken = chromium
            .call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }))?;
        fs::write(picture, decoded(taken["data"].as_str().unwrap_or_default()))
            .map_err(|error| format!("{}: {error}", picture.display()))?;
        chromium.value(UNFOLD)?;
        check("overflows unfolded:", chromium.value(OVERFLOWING)?);
        if let Some(axe) = self.axe {
            chromium.value(axe)?;
            let found = chromium.value(VIOLATIONS)?;
            found.as_array().into_iter().flatten().for_each(|violation| check("axe:", violation.clone()));
        }
        for exception in chromium.events("Runtime.exceptionThrown") {
            faults.push(format!("{of}: {}", exception["exceptionDetails"]));
        }
        for entry in chromium.events("Log.entryAdded").filter(|entry| entry["entry"]["level"] == "error") {
            faults.push(format!("{of}: {}", entry["entry"]["text"]));
        }
        for sent in chromium.events("Network.requestWillBeSent") {
            let url = sent["request"]["url"].as_str().unwrap_or_default();
            let is_own = match self.page.url.starts_with("http") {
                true => url.starts_with(&self.page.url),
                false => url == self.page.url,
            };
            if !is_own && !url.starts_with("data:") {
                faults.push(format!("{of}: asks for {url}"));
            }
        }
        Ok(faults)
    }
}

/// Bytes from base64.
fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(value).collect();
    let of = |four: &[u8]| {
        let bits = four
            .iter()
            .chain([0; 4].iter().take(4 - four.len()))
            .fold(0u32, |bits, digit| bits << 6 | u32::from(*digit));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(of).collect()
}

/// Pages of large recordings: their sizes, and the time until 20,000 events are drawn.
fn large(root: &Path, tool: &Path, folder: &Path, chromium: &mut Chromium) -> Result<Vec<String>, String> {
    let workload = root.join("workloads/dfsioe_write.tar.xz").display().to_string();
    let events = folder.join("many.jsonl").display().to_string();
    fs::write(&events, recordings::events(Names::Plain, 20_000)).map_err(|error| error.to_string())?;
    let parameters = folder.join("found.toml").display().to_string();
    let mut faults = Vec::new();
    for (name, args, most) in [
        ("tune", &["tune", &workload, "--iterations", "5", "--out", &parameters, "--report"][..], PAGE_MAX),
        ("compare", &["compare", &workload, "--bad-slowest", "1%", "--html"], PAGE_MAX),
        ("path", &["critical-path", &workload, "--html"], PAGE_MAX),
        ("order", &["order", &events, "--html"], ORDER_MAX),
    ] {
        let page = folder.join(format!("large-{name}.html"));
        call(tool, args, &page)?;
        let size = fs::metadata(&page).map_or(0, |data| data.len());
        println!("large-{name}.html: {} kB", size / 1000);
        if size > most {
            faults.push(format!("large-{name}.html has {size} bytes, more than {most}"));
        }
        if name == "order" {
            chromium.open(&format!("file://{}", page.display()))?;
            let time = chromium
                .value("new Promise((done) => requestAnimationFrame(() => done(performance.now())))")?;
            let frames = chromium.value(FRAMES)?;
            println!("20,000 events are drawn after {time:.0} ms, and while they move in {frames}");
            if time.as_f64().is_none_or(|ms| ms > OPEN_MAX) {
                faults.push(format!("20,000 events are drawn after {time} ms, more than {OPEN_MAX}"));
            }
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648, section 10.
    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(decoded(text), bytes.as_bytes());
        }
    }
}
