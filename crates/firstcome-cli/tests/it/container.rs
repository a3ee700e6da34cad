//! The `Dockerfile`: what it copies is there, what it runs the program understands, and the program does not run as root.

use crate::support::program::{PROGRAM, command, run};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The instructions of the file, each in one line.
fn instructions() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("Dockerfile")).expect("there is a Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()))
        .collect()
}

/// What follows the last instruction of this name in the last stage.
fn of_last_stage(name: &str) -> String {
    let all = instructions();
    let begin = all.iter().rposition(|(name, _)| name == "FROM").expect("a stage");
    let found = all[begin..].iter().rev().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("the last stage has no {name}")).1.clone()
}

/// The words of a command in its JSON form.
fn words(text: &str) -> Vec<String> {
    let from = text.find('[').unwrap_or_else(|| panic!("{text} is not in JSON form, so a shell would run it"));
    serde_json::from_str(&text[from..]).expect("a list of texts")
}

#[test]
fn images_have_a_version_and_the_compiler_is_the_one_of_the_workspace() {
    let images: Vec<String> =
        instructions().into_iter().filter(|(name, _)| name == "FROM").map(|(_, rest)| rest).collect();
    assert_eq!(images.len(), 2, "one that builds, one that runs");
    for image in &images {
        let name = image.split(' ').next().unwrap_or_default();
        let (_, tag) = name.split_once(':').unwrap_or_else(|| panic!("{name} has no version"));
        assert!(!tag.contains("latest") && tag.contains("slim"), "{name}");
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml")).expect("a workspace");
    let version = workspace.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
    assert!(
        images[0].starts_with(&format!("rust:{}-", version.trim_matches('"'))),
        "{} builds with {version}",
        images[0]
    );
}

#[test]
fn what_is_copied_is_there_and_is_sent_along() {
    let sent = fs::read_to_string(root().join(".dockerignore")).expect("there is a .dockerignore");
    let mut copied = 0;
    for (_, rest) in instructions().iter().filter(|(name, rest)| name == "COPY" && !rest.starts_with("--from=")) {
        let paths: Vec<&str> = rest.split_whitespace().collect();
        for path in &paths[..paths.len() - 1] {
            assert!(root().join(path).exists(), "{path} is copied, and is not there");
            assert!(sent.lines().any(|line| line == format!("!{path}")), "{path} is copied, and is not sent along");
            copied += 1;
        }
    }
    assert_eq!(copied, sent.lines().count() - 1, "what is sent along is copied");
    assert_eq!(sent.lines().next(), Some("*"), "nothing else is sent along: no data, no secret");
}

#[test]
fn the_image_has_the_public_authorities_that_tls_without_a_ca_trusts() {
    let all = instructions();
    let last = all.iter().rposition(|(name, _)| name == "FROM").expect("a stage");
    let (build, run) = all.split_at(last);
    let installs = |(name, rest): &(String, String)| name == "RUN" && rest.contains(" ca-certificates ");
    assert!(build.iter().any(installs), "the stage that builds has none to copy");
    // The first file that the program looks for.
    let file = "/etc/ssl/certs/ca-certificates.crt";
    let copies = |(name, rest): &(String, String)| name == "COPY" && *rest == format!("--from=build {file} {file}");
    assert!(run.iter().any(copies), "the image trusts no authority");
}

#[test]
fn the_program_runs_as_an_unprivileged_user_and_keeps_its_data_in_a_volume() {
    let user = of_last_stage("USER");
    let (number, group) = user.split_once(':').expect("a user and a group");
    // Kubernetes refuses a name where it must know that the user is not root.
    assert!([number, group].iter().all(|id| id.parse::<u32>().is_ok_and(|id| id != 0)), "{user}");
    let all = instructions();
    let at = |wanted: &str| all.iter().rposition(|(name, _)| name == wanted);
    assert!(at("RUN") < at("USER") && at("USER") < at("ENTRYPOINT"), "what runs, runs as {user}");
    assert_eq!((of_last_stage("VOLUME"), of_last_stage("EXPOSE")), ("/data".to_owned(), "8080 8081".to_owned()));
    let owned = &all.iter().rev().find(|(name, rest)| name == "RUN" && rest.contains("/data")).expect("it is made").1;
    assert!(owned.contains(&format!("--owner={number} --group={group}")) && owned.contains("--mode=0700"), "{owned}");
}

#[test]
fn the_program_understands_what_it_is_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let call = |words: &[String]| run(command(PROGRAM, directory.path()).args(words));
    assert_eq!(words(&of_last_stage("ENTRYPOINT")), ["firstcome"]);
    let mut serve = words(&of_last_stage("CMD"));
    assert_eq!(serve[0], "serve");
    assert_eq!(serve.iter().position(|word| word == "0.0.0.0:8080").map(|at| serve[at - 1].as_str()), Some("--listen"));
    assert_eq!(serve.iter().position(|word| word == "/data").map(|at| serve[at - 1].as_str()), Some("--data"));
    serve.push("--help".to_owned());
    call(&serve).well();
    let check = of_last_stage("HEALTHCHECK");
    let mut health = words(&check);
    assert_eq!((health[0].as_str(), health[1].as_str()), ("firstcome", "health"), "{check}");
    let url = health.last_mut().expect("an address");
    // Not ready is no reason to end a container, and visitors take no connection of the port for operators.
    assert_eq!(url, "http://127.0.0.1:8081/healthz");
    let admin = of_last_stage("ENV");
    assert_eq!(admin, "FIRSTCOME_ADMIN_LISTEN=127.0.0.1:8081", "the service listens where it is asked");
    // No caller listens there: understood, and not well.
    *url = url.replace("8081", "1");
    call(&health[1..]).with(3);
}
