import { timestampDate } from "@bufbuild/protobuf/wkt";
import { useSignal } from "@preact/signals";
import type { BackupDetails } from "../../../../gen/svc/v1/backup_pb.ts";
import { useLive } from "../../live.ts";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { TextField, bindText } from "../../parts/field.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { momentText, When } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { backupTexts as labels } from "../../texts/backups.ts";
import { formatBytes } from "../../units.ts";
import { Warnings } from "./app-backups.tsx";
import { ArchiveActions } from "./archive-actions.tsx";
import { ArchiveFiles } from "./archive-files.tsx";
import type { ArchiveProps } from "./archive-props.ts";

/** One archive: its details, files and actions. */
export function ArchiveView({ client, node, of, path }: Omit<ArchiveProps, "identity"> & { path: string }) {
  const identity = useSignal("");
  const { value, failure, reload } = useLive(
    node,
    [],
    (signal) => client.getBackup({ ...of, identity: identity.value }, { signal }),
    [client, identity.value],
  );
  const props = { client, node, of, identity: identity.value };
  const app = plainText(node.apps.value?.get(of.appId)?.name ?? of.appId);
  const madeAt = value?.archive?.createdAt;
  return (
    <>
      <a class="back" href={pathTo("backups", of.appId)}>
        {labels.ofApp(app)}
      </a>
      <Heading
        title={
          madeAt === undefined ? plainText(of.name) : labels.archiveOf(app, momentText(timestampDate(madeAt)))
        }
      />
      <Failure message={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {(value?.archive?.encrypted === true || failure !== "") && (
        <Identity onOpen={(typed) => (identity.value = typed)} />
      )}
      {value !== undefined && (
        <>
          <ArchiveActions {...props} madeAt={value.archive?.createdAt} onDone={reload} />
          <About details={value} />
          <ArchiveFiles {...props} path={path} />
        </>
      )}
    </>
  );
}

function Identity({ onOpen }: { onOpen: (identity: string) => void }) {
  const typed = useSignal("");
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    onOpen(typed.value);
  };
  return (
    <form class="card settings" onSubmit={submit}>
      <TextField
        label={labels.identity}
        hint={labels.identityHint}
        {...bindText(typed)}
        input={{ type: "password" }}
      />
      <button type="submit">{labels.open}</button>
    </form>
  );
}

function About({ details }: { details: BackupDetails }) {
  const { archive, version, mode, contentBytes, entries, svcVersion, warnings } = details;
  return (
    <Facts
      title={labels.facts}
      facts={[
        [labels.columns.made, archive && <When key="made" at={archive.createdAt} />],
        [labels.fileName, archive && <Text key="name" of={archive.name} />],
        [labels.columns.storage, archive && <Text key="storage" of={archive.storage} />],
        [labels.columns.size, archive && formatBytes(archive.sizeBytes)],
        [labels.ofVersion, <Text key="version" of={version} />],
        [labels.content, labels.contentSays(String(entries), formatBytes(contentBytes))],
        [labels.mode, labels.modes[mode] ?? mode],
        [
          labels.columns.verified,
          archive?.verifiedAt ? <When key="verified" at={archive.verifiedAt} /> : labels.never,
        ],
        [
          labels.columns.proven,
          archive?.restoredAt ? <When key="proven" at={archive.restoredAt} /> : labels.never,
        ],
        [labels.madeBy, <Text key="by" of={svcVersion} />],
        [labels.warnings, warnings.length > 0 ? <Warnings key="warnings" of={warnings} /> : ""],
      ]}
    />
  );
}
