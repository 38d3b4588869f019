import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { useSignal } from "@preact/signals";
import type { Progress } from "../../../../gen/svc/v1/app_pb.ts";
import { useAction } from "../../action.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { TextField } from "../../parts/field.tsx";
import { ProgressLine } from "../../parts/progress-line.tsx";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { saveFile } from "../../save-file.ts";
import { backupTexts as says } from "../../texts/backups.ts";
import type { ArchiveProps } from "./archive-props.ts";

type Question = "restore" | "restoreNew" | "remove";

interface Props extends ArchiveProps {
  madeAt: Timestamp | undefined;
  onDone: () => void;
}

/** Verify, restore, download and delete. */
export function ArchiveActions({ client, node, of, identity, madeAt, onDone }: Props) {
  const { busy, failure, perform } = useAction();
  const progress = useSignal<Progress | undefined>(undefined);
  const said = useSignal("");
  const asked = useSignal<Question | undefined>(undefined);
  const newName = useSignal("");
  const app = node.apps.value?.get(of.appId);
  const stops = app !== undefined && app.state !== "STOPPED";
  const close = (): void => void (asked.value = undefined);

  const verify = (deep: boolean): Promise<void> =>
    perform(deep ? "deep" : "verify", async (signal) => {
      said.value = "";
      for await (const { event } of client.verifyBackupStream({ ...of, identity, deep }, { signal })) {
        if (event.case === "progress") progress.value = event.value;
        else if (event.case === "result")
          said.value = (deep ? says.proven : says.verified)(String(event.value.entries));
      }
      onDone();
    }).finally(() => (progress.value = undefined));
  const restore = async (
    how: { stopApp: boolean } | { asNew: true; newName: string },
    signal: AbortSignal,
  ): Promise<void> => {
    said.value = "";
    try {
      for await (const { event } of client.restoreBackupStream({ ...of, identity, ...how }, { signal })) {
        if (event.case === "progress") progress.value = event.value;
        else if (event.case === "result") {
          said.value = says.restored(String(event.value.entries));
          if ("asNew" in how) location.hash = pathTo("apps", event.value.appId);
        }
      }
    } finally {
      progress.value = undefined;
    }
  };
  const button = (name: string, label: string, onClick: () => void, isDanger = false) => (
    <button type="button" class={isDanger ? "danger" : ""} aria-busy={busy === name} onClick={onClick}>
      {label}
    </button>
  );
  return (
    <>
      <div class="row">
        {button("verify", says.verify, () => void verify(false))}
        {button("deep", says.verifyDeep, () => void verify(true))}
        {button(
          "download",
          says.download,
          () =>
            void perform("download", (signal) => saveFile(client.downloadBackup(of, { signal }), of.name)),
        )}
        {app !== undefined && button("restore", says.restore, () => (asked.value = "restore"), true)}
        {button("restoreNew", says.restoreNew, () => (asked.value = "restoreNew"))}
        {button("remove", says.remove, () => (asked.value = "remove"), true)}
        <span role="status">{said.value}</span>
      </div>
      <ProgressLine of={progress.value} />
      <Failure says={failure} />
      {asked.value === "restore" && (
        <Confirm
          title={says.restoreTitle(plainText(app?.name ?? of.appId))}
          action={says.restore}
          onClose={close}
          onConfirm={(signal) => restore({ stopApp: stops }, signal)}
        >
          <p>{says.restoreLoses(madeAt === undefined ? "" : timestampDate(madeAt).toLocaleString())}</p>
          {stops && <p>{says.restoreStops}</p>}
        </Confirm>
      )}
      {asked.value === "restoreNew" && (
        <Confirm
          title={says.restoreNew}
          action={says.restoreNew}
          onClose={close}
          onConfirm={(signal) => restore({ asNew: true, newName: newName.value.trim() }, signal)}
        >
          <TextField
            label={says.newName}
            hint={says.newNameHint}
            value={newName.value}
            onType={(value) => (newName.value = value)}
          />
        </Confirm>
      )}
      {asked.value === "remove" && (
        <Confirm
          title={says.removeTitle}
          action={says.remove}
          onClose={close}
          onConfirm={async () => {
            const { hash } = location;
            await client.deleteBackup(of);
            // Who looks at something else by now goes on with that.
            if (location.hash === hash) location.hash = pathTo("backups", of.appId);
          }}
        >
          <p>{says.removeLoses}</p>
        </Confirm>
      )}
    </>
  );
}
