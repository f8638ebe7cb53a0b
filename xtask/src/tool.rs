//! External programs that steps call, and their installation on request.

use std::path::Path;
use std::process::{Command, Stdio};

/// Checks that a program exists. With `install`, as root on Debian, installs it if it is missing;
/// otherwise the error says what to install.
///
/// # Errors
///
/// A sentence that names the missing program.
pub(crate) fn require(program: &str, debian_package: &str, install: bool) -> Result<(), String> {
    if is_there(program) {
        return Ok(());
    }
    if !install {
        return Err(format!(
            "{program} is missing: install it (Debian: {debian_package}), or use --install as root on Debian"
        ));
    }
    if !can_install_packages() {
        return Err(format!(
            "{program} is missing, and --install works only as root on Debian: install {debian_package} yourself"
        ));
    }
    println!("{program} is missing: installing {debian_package}");
    install_package(debian_package).map_err(|error| format!("{program} is missing, and {error}"))?;
    if is_there(program) {
        Ok(())
    } else {
        Err(format!("{debian_package} was installed, but it has no {program}"))
    }
}

/// Whether system packages can be installed: as root on Debian.
pub(crate) fn can_install_packages() -> bool {
    is_root() && is_there("apt-get")
}

/// Installs a Debian package.
///
/// # Errors
///
/// A sentence that names the failed command.
pub(crate) fn install_package(name: &str) -> Result<(), String> {
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get").args(["install", "-y", "-qq", "--no-install-recommends", name]))
}

/// Installs something that a step can do without. A failure is only printed; the step then skips
/// what needs it.
pub(crate) fn try_install(command: &mut Command) {
    if let Err(error) = run(command) {
        println!("{error}");
    }
}

/// Whether `cargo +TOOLCHAIN` works, for example `nightly` or `1.88`. With `install`, rustup
/// installs a missing one.
pub(crate) fn toolchain(root: &Path, toolchain: &str, install: bool) -> bool {
    if install && !has_toolchain(root, toolchain) {
        let words = ["toolchain", "install", toolchain, "--profile", "minimal", "--no-self-update"];
        try_install(Command::new("rustup").current_dir(root).args(words));
    }
    has_toolchain(root, toolchain)
}

fn has_toolchain(root: &Path, toolchain: &str) -> bool {
    is_silent_success(toolchain_cargo(root, toolchain).arg("--version"))
}

/// rustup's cargo rather than the one that runs this program: only rustup's understands
/// `+TOOLCHAIN`.
pub(crate) fn toolchain_cargo(root: &Path, toolchain: &str) -> Command {
    let mut command = Command::new("cargo");
    command.arg(format!("+{toolchain}")).current_dir(root).env("RUSTUP_AUTO_INSTALL", "0");
    // Cargo sets these for the programs it runs. They would override the choice of a toolchain.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
    command
}

/// Whether a command exists and succeeds. Its output is discarded.
pub(crate) fn is_silent_success(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a command and shows its output.
///
/// # Errors
///
/// A sentence that names the command.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}").replace('"', "");
    println!("$ {shown}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("`{shown}` did not start: {error}")),
    }
}

fn is_there(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_installed_without_being_asked() {
        let missing = require("no-such-program", "no-such-package", false).unwrap_err();
        assert!(missing.contains("no-such-program") && missing.contains("no-such-package"), "{missing}");
        assert_eq!(require("sh", "dash", false), Ok(()));
    }

    #[test]
    fn failed_commands_are_named() {
        assert!(is_there("sh") && !is_there("no-such-program"));
        let failed = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(failed.contains("sh -c") && failed.contains('3'), "{failed}");
        assert!(run(&mut Command::new("no-such-program")).unwrap_err().contains("did not start"));
    }
}
