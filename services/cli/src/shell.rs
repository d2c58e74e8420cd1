//! What packages install beside the program: completion scripts and man pages, made from the command line
//! itself.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// Options of `ashlar completion`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of `ashlar man`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManArgs {
    /// Folder for one page per command; without it the main page goes to standard output
    folder: Option<PathBuf>,
}

/// Prints a completion script.
pub(crate) fn completion<C: CommandFactory>(args: &CompletionArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "ashlar", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Prints the man page, or writes one per command.
pub(crate) fn man<C: CommandFactory>(args: &ManArgs) -> Outcome {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(C::command())
            .render(&mut page)
            .map_err(|error| Failure::new(Exit::Failed, "writing the man page", error))?;
        return output::print(&String::from_utf8_lossy(&page));
    };
    let doing = || format!("writing man pages to {}", folder.display());
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(C::command(), folder))
        .map_err(|error| Failure::file(doing(), &error))
}
