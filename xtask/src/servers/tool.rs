//! The programs that bring and run servers.

use std::process::{Command, Stdio};

/// Makes sure that a program is there. As root on Debian it is installed; elsewhere the user is told what to do.
///
/// # Errors
///
/// A sentence that says what is missing.
pub(super) fn require(program: &str, debian_package: &str) -> Result<(), String> {
    if is_there(program) {
        return Ok(());
    }
    if !is_root() || !is_there("apt-get") {
        return Err(format!(
            "{program} is missing: install it (on Debian as root: apt-get install {debian_package}) and try again"
        ));
    }
    println!("{program} is missing: installing {debian_package}");
    let installed = run(Command::new("apt-get").args(["update", "-qq"])).and_then(|()| {
        run(Command::new("apt-get").args(["install", "-y", "-qq", "--no-install-recommends", debian_package]))
    });
    installed.map_err(|error| format!("{program} is missing, and {error}"))?;
    if is_there(program) {
        Ok(())
    } else {
        Err(format!("{debian_package} was installed, but brought no {program}"))
    }
}

/// Runs a command whose output goes where ours goes.
///
/// # Errors
///
/// A sentence that names the command.
pub(super) fn run(command: &mut Command) -> Result<(), String> {
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
    fn what_is_missing_is_named_with_its_package() {
        assert!(is_there("sh") && !is_there("no-such-program"));
        let failed = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(failed.contains("sh -c") && failed.contains('3'), "{failed}");
        assert!(run(&mut Command::new("no-such-program")).unwrap_err().contains("did not start"));
    }
}
