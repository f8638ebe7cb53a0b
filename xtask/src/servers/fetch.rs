//! Downloads or builds a server's program once. The user's cache keeps it, under a name that
//! contains a hash of its sources.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kind::{Kind, ZIPKIN_VERSION};
use crate::tool;

/// The folder of the Go module, relative to the root.
const GO_MODULE: &str = "xtask/servers/go";

/// The path of a server's program: a jar or a binary.
///
/// # Errors
///
/// A sentence for the user, if a tool is missing or fails.
pub(super) fn fetch(root: &Path, kind: Kind, install: bool) -> Result<PathBuf, String> {
    let cache = cache()?;
    std::fs::create_dir_all(&cache).map_err(|error| format!("{}: {error}", cache.display()))?;
    if kind == Kind::Zipkin {
        tool::require("java", "default-jre-headless", install)?;
        return zipkin(&cache, install);
    }
    let program = cache.join(format!("{}-{:016x}", kind.name(), source_hash(root)?));
    if !program.is_file() {
        let package = match kind {
            Kind::Jaeger => "github.com/jaegertracing/jaeger/cmd/jaeger",
            _ => "./collector",
        };
        go_build(root, package, &program, install)?;
    }
    Ok(program)
}

fn zipkin(cache: &Path, install: bool) -> Result<PathBuf, String> {
    let jar = cache.join(format!("zipkin-server-{ZIPKIN_VERSION}-exec.jar"));
    if !jar.is_file() {
        tool::require("mvn", "maven", install)?;
        // Copied to a temporary folder first, so that an interrupted download never leaves half a
        // jar under the final name.
        let fresh = fresh(cache, "zipkin");
        let artifact = format!("-Dartifact=io.zipkin:zipkin-server:{ZIPKIN_VERSION}:jar:exec");
        let copied = tool::run(
            Command::new("mvn")
                .args(["-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy", &artifact])
                .arg(format!("-DoutputDirectory={}", fresh.display())),
        );
        let name = jar.file_name().unwrap_or_default();
        let moved = copied.and_then(|()| rename(&fresh.join(name), &jar));
        let _ = std::fs::remove_dir_all(&fresh);
        moved?;
    }
    Ok(jar)
}

/// Builds a Go program. The first one takes about eight minutes on two cores, most of it for
/// packages that both servers share.
fn go_build(root: &Path, package: &str, program: &Path, install: bool) -> Result<(), String> {
    tool::require("go", "golang-go", install)?;
    let fresh = fresh(program.parent().unwrap_or(root), "go");
    let built = tool::run(
        Command::new("go")
            .args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o"])
            .args([fresh.as_os_str(), package.as_ref()])
            .env("CGO_ENABLED", "0")
            .current_dir(root.join(GO_MODULE)),
    );
    let moved = built.and_then(|()| rename(&fresh, program));
    let _ = std::fs::remove_file(&fresh);
    moved
}

fn fresh(cache: &Path, name: &str) -> PathBuf {
    cache.join(format!(".{name}-{}", std::process::id()))
}

fn rename(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::rename(from, to)
        .map_err(|error| format!("cannot move {} to {}: {error}", from.display(), to.display()))
}

/// A hash of everything that Jaeger and the collector are built from.
fn source_hash(root: &Path) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    for name in ["go.mod", "go.sum", "collector/main.go"] {
        let path = root.join(GO_MODULE).join(name);
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn cache() -> Result<PathBuf, String> {
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = own
        .or_else(home)
        .ok_or("neither XDG_CACHE_HOME nor HOME is set: set one, so that servers can be cached")?;
    Ok(cache.join("astracer").join("servers"))
}
