//! Checks that the secret of the cluster opens all wrapped secrets.

use crate::database::{coupon, deployment, room, secrets};
use crate::wrap::DeploymentSecret;
use firstcome_sql::SqlError;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::Reading;
use firstcome_store::check::Check;

pub(super) async fn check(reading: &mut Reading, secret: &DeploymentSecret) -> Result<Check, SqlError> {
    let mut check = Check::new("every secret opens with that of the deployment");
    let rows = reading.ask("SELECT probe FROM firstcome_deployment;".to_owned()).await?;
    for row in &rows {
        let probe = Reader::at(row, 0).maybe_blob()?.unwrap_or_default();
        check.check(secret.unwrap(&probe, deployment::PLACE) == Some(deployment::PROBE), || {
            "the deployment's own".into()
        });
    }
    // A handful, by their names.
    let rows = reading.ask("SELECT name,wrapped FROM firstcome_secret ORDER BY name;".to_owned()).await?;
    for row in &rows {
        let mut columns = Reader::at(row, 0);
        let name = columns.maybe_text()?.unwrap_or_default();
        let wrapped = columns.maybe_blob()?.unwrap_or_default();
        check.check(secret.unwrap(&wrapped, &secrets::place(&name)).is_some(), || format!("secret {name}"));
    }
    reading
        .numbered("SELECT id,name,code_key FROM firstcome_coupon", |_, row| {
            let mut columns = Reader::at(row, 1);
            let name = columns.maybe_text()?.unwrap_or_default();
            let wrapped = columns.maybe_blob()?.unwrap_or_default();
            let opens = secret.unwrap(&wrapped, &coupon::place(&name)).is_some();
            check.check(opens, || format!("that of the codes of coupon {name}"));
            Ok(())
        })
        .await?;
    reading
        .numbered("SELECT id,name,ticket_key FROM firstcome_room", |_, row| {
            let mut columns = Reader::at(row, 1);
            let name = columns.maybe_text()?.unwrap_or_default();
            let wrapped = columns.maybe_blob()?.unwrap_or_default();
            let opens = secret.unwrap(&wrapped, &room::place(&name)).is_some();
            check.check(opens, || format!("that of the tickets of room {name}"));
            Ok(())
        })
        .await?;
    reading
        .numbered("SELECT id,secret FROM firstcome_pass_secret", |id, row| {
            let wrapped = Reader::at(row, 1).maybe_blob()?.unwrap_or_default();
            check.check(secret.unwrap(&wrapped, &room::pass_place(id)).is_some(), || format!("number {id} of passes"));
            Ok(())
        })
        .await?;
    Ok(check)
}
