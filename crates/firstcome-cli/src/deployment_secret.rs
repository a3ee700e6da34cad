//! The secret of a deployment, and the second one while an operator replaces it: arguments, variables and files.

use crate::failure::Failure;
use crate::keys;
use anyhow::{Context, anyhow};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use firstcome::cluster::{DeploymentSecret, SECRET_BYTES_MIN};
use std::path::{Path, PathBuf};

/// How an operator without a secret makes one.
const MAKE_ONE: &str = "make one with `head -c 32 /dev/urandom | base64`, and give the same one to every node, in FIRSTCOME_SECRET \
    or with --secret-file FILE";
const SECRET: &str = "FIRSTCOME_SECRET";
const FALLBACK: &str = "FIRSTCOME_SECRET_FALLBACK";

/// A file, and what has named it.
type Named = Option<(PathBuf, ValueSource)>;

/// The secret of a deployment: `--secret-file`, or the variables of `FIRSTCOME_SECRET`. The fallback in the same way.
pub(crate) struct SecretArgs {
    secret: Named,
    fallback: Named,
}

#[derive(Args)]
struct SecretFlags {
    /// File with the secret of a cluster, the same for each node [default: FIRSTCOME_SECRET]
    #[arg(long, env = "FIRSTCOME_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// File with a second secret, which opens what it has wrapped and wraps no more, while the secret is replaced [default: FIRSTCOME_SECRET_FALLBACK]
    #[arg(long, env = "FIRSTCOME_SECRET_FALLBACK_FILE", value_name = "FILE")]
    secret_fallback_file: Option<PathBuf>,
}

impl FromArgMatches for SecretArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let SecretFlags { secret_file, secret_fallback_file } = SecretFlags::from_arg_matches(matches)?;
        Ok(Self {
            secret: secret_file.zip(matches.value_source("secret_file")),
            fallback: secret_fallback_file.zip(matches.value_source("secret_fallback_file")),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SecretArgs {
    fn augment_args(command: Command) -> Command {
        SecretFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SecretFlags::augment_args_for_update(command)
    }
}

impl SecretArgs {
    /// Reads the secret of the deployment: from the file that the flag names, else from the environment, else from the
    /// file that the settings name. The fallback in the same way, if there is one. Fails if there is no secret.
    pub(crate) fn read(&self) -> Result<DeploymentSecret, Failure> {
        let missing = || anyhow!("--redis and --sql need the secret of the deployment: {MAKE_ONE}");
        self.read_maybe()?.ok_or_else(|| Failure::Usage(missing()))
    }

    /// Reads the secret as [`Self::read`], if there is one.
    pub(crate) fn read_maybe(&self) -> Result<Option<DeploymentSecret>, Failure> {
        let (secret, fallback) = (text_of(SECRET, self.secret.as_ref())?, text_of(FALLBACK, self.fallback.as_ref())?);
        let Some(fallback) = fallback else { return secret.map(|text| checked(SECRET, &text)).transpose() };
        let alone =
            || anyhow!("there is {FALLBACK} without {SECRET}: give the secret by which this node wraps in {SECRET}");
        let secret = secret.ok_or_else(|| Failure::Usage(alone()))?;
        let same = || anyhow!("{FALLBACK} is the same secret as {SECRET}: give the other one of the two, or unset it");
        let secret = checked(SECRET, &secret)?.with_fallback(&checked(FALLBACK, &fallback)?);
        secret.map(Some).ok_or_else(|| Failure::Usage(same()))
    }
}

fn text_of(variable: &str, named: Option<&(PathBuf, ValueSource)>) -> Result<Option<String>, Failure> {
    if let Some((path, ValueSource::CommandLine)) = named {
        return read(path).map(Some);
    }
    match keys::from_environment(variable).map_err(Failure::Usage)? {
        Some(text) => Ok(Some(text)),
        None => named.map(|(path, _)| read(path)).transpose(),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path);
    text.with_context(|| format!("cannot read the secret in {}", path.display())).map_err(Failure::Usage)
}

fn checked(variable: &str, text: &str) -> Result<DeploymentSecret, Failure> {
    let short = || match variable {
        FALLBACK => anyhow!(
            "{FALLBACK} has fewer than {SECRET_BYTES_MIN} bytes: give a secret that the deployment had or gets, whole"
        ),
        _ => anyhow!("the secret of a deployment has at least {SECRET_BYTES_MIN} bytes: {MAKE_ONE}"),
    };
    DeploymentSecret::new(text).ok_or_else(|| Failure::Usage(short()))
}
