import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { useSignal } from "@preact/signals";
import { useAction } from "../../action.ts";
import { isRunning } from "../../app-state.ts";
import { useLongWork } from "../../long-work.ts";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { AppNameField } from "../../parts/app-name-field.tsx";
import { CancelWork, Work } from "../../parts/work.tsx";
import { momentText } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { saveFile } from "../../save-file.ts";
import { texts } from "../../texts.ts";
import { backupTexts as labels } from "../../texts/backups.ts";
import { UserFacingError } from "../../user-facing-error.ts";
import { RestoreBackupResponseSchema, VerifyBackupResponseSchema } from "../../../../gen/svc/v1/backup_pb.ts";
import type { ArchiveProps } from "./archive-props.ts";

interface RestoreHow {
  readonly stopApp?: boolean;
  readonly asNew?: boolean;
  readonly newName?: string;
}

interface Props extends ArchiveProps {
  madeAt: Timestamp | undefined;
  onDone: () => void;
}

/** Buttons to verify, restore, download and delete an archive. */
export function ArchiveActions({ client, node, of, identity, madeAt, onDone }: Props) {
  const { busy, failure, perform } = useAction();
  const notice = useSignal("");
  const newName = useSignal("");
  const isDeep = useSignal(false);
  const how = useSignal<RestoreHow>({});
  const app = node.apps.value?.get(of.appId);
  const stops = app !== undefined && isRunning(app);
  const verifying = useLongWork(
    node.operations,
    VerifyBackupResponseSchema,
    (_accepted, signal) => {
      const request = { ...of, identity, deep: isDeep.value, detach: true };
      return client.verifyBackup(request, { signal });
    },
    ({ entries }) => {
      notice.value = (isDeep.value ? labels.restorable : labels.verified)(String(entries));
      onDone();
    },
  );
  const restoring = useLongWork(
    node.operations,
    RestoreBackupResponseSchema,
    (accepted, signal) =>
      client.restoreBackup({ ...of, identity, ...how.value, ...accepted, detach: true }, { signal }),
    ({ appId, entries }) => {
      notice.value = labels.restored(String(entries));
      onDone();
      if (how.value.asNew === true) location.hash = pathTo("apps", appId);
    },
  );
  const verify = (deep: boolean): void => {
    if (verifying.isBusy) return;
    [notice.value, isDeep.value] = ["", deep];
    void verifying.run();
  };
  /** Called after the confirmation; the page shows the progress. */
  const restore = (as: RestoreHow): Promise<void> => {
    if (restoring.isBusy) throw new UserFacingError(texts.work.busy);
    [notice.value, how.value] = ["", as];
    void restoring.run();
    return Promise.resolve();
  };
  const busyNow = [
    busy,
    verifying.isBusy ? (isDeep.value ? "deep" : "verify") : "",
    restoring.isBusy ? (how.value.asNew === true ? "restoreNew" : "restore") : "",
  ];
  const button = (name: string, label: string, onClick: () => void) => (
    <button type="button" aria-busy={busyNow.includes(name)} onClick={onClick}>
      {label}
    </button>
  );
  return (
    <>
      <div class="row">
        {button("verify", labels.verify, () => verify(false))}
        {button("deep", labels.verifyDeep, () => verify(true))}
        {button(
          "download",
          labels.download,
          () =>
            void perform("download", (signal) => saveFile(client.downloadBackup(of, { signal }), of.name)),
        )}
        {app !== undefined && (
          <ConfirmButton
            title={labels.restoreTitle(plainText(app.name))}
            action={labels.restore}
            isBusy={busyNow.includes("restore")}
            onConfirm={async () => restore({ stopApp: stops })}
          >
            <p>{labels.restoreLoses(madeAt === undefined ? "" : momentText(timestampDate(madeAt)))}</p>
            {stops && <p>{labels.restoreStops}</p>}
          </ConfirmButton>
        )}
        <ConfirmButton
          title={labels.restoreNew}
          action={labels.restoreNew}
          isDanger={false}
          isBusy={busyNow.includes("restoreNew")}
          onConfirm={async () => restore({ asNew: true, newName: newName.value.trim() })}
        >
          <AppNameField label={labels.newName} hint={labels.newNameHint} name={newName} node={node} />
        </ConfirmButton>
        <ConfirmButton
          title={labels.removeTitle}
          action={labels.remove}
          onConfirm={async () => {
            const { hash } = location;
            await client.deleteBackup(of);
            // Do not navigate if the user has opened another view.
            if (location.hash === hash) location.hash = pathTo("backups", of.appId);
          }}
        >
          <p>{labels.removeLoses}</p>
        </ConfirmButton>
        <CancelWork of={verifying} />
        <CancelWork of={restoring} />
        <span role="status">{notice.value}</span>
        {app !== undefined && <a href={pathTo("apps", of.appId)}>{labels.toApp}</a>}
      </div>
      <Work of={verifying} />
      <Work of={restoring} />
      <Failure message={failure} />
    </>
  );
}
