import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { useSignal } from "@preact/signals";
import { useAction } from "../../action.ts";
import { isRunning } from "../../app-state.ts";
import { useLongWork } from "../../long-work.ts";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { TextField, typedInto } from "../../parts/field.tsx";
import { CancelWork, Work } from "../../parts/work.tsx";
import { momentText } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { saveFile } from "../../save-file.ts";
import { texts } from "../../texts.ts";
import { backupTexts as says } from "../../texts/backups.ts";
import { ToldError } from "../../told-error.ts";
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

/** Verify, restore, download and delete. */
export function ArchiveActions({ client, node, of, identity, madeAt, onDone }: Props) {
  const { busy, failure, perform } = useAction();
  const said = useSignal("");
  const newName = useSignal("");
  const isDeep = useSignal(false);
  const how = useSignal<RestoreHow>({});
  const app = node.apps.value?.get(of.appId);
  const stops = app !== undefined && isRunning(app);
  const verifying = useLongWork(
    (_accepted, signal) => client.verifyBackupStream({ ...of, identity, deep: isDeep.value }, { signal }),
    ({ value }) => {
      said.value = (isDeep.value ? says.proven : says.verified)(String(value.entries));
      onDone();
    },
  );
  const restoring = useLongWork(
    (_accepted, signal) => client.restoreBackupStream({ ...of, identity, ...how.value }, { signal }),
    ({ value }) => {
      said.value = says.restored(String(value.entries));
      onDone();
      if (how.value.asNew === true) location.hash = pathTo("apps", value.appId);
    },
  );
  const verify = (deep: boolean): void => {
    if (verifying.isBusy) return;
    [said.value, isDeep.value] = ["", deep];
    void verifying.run();
  };
  /** The question is answered; how it goes is told on the page. */
  const restore = (as: RestoreHow): Promise<void> => {
    if (restoring.isBusy) throw new ToldError(texts.work.busy);
    [said.value, how.value] = ["", as];
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
        {button("verify", says.verify, () => verify(false))}
        {button("deep", says.verifyDeep, () => verify(true))}
        {button(
          "download",
          says.download,
          () =>
            void perform("download", (signal) => saveFile(client.downloadBackup(of, { signal }), of.name)),
        )}
        {app !== undefined && (
          <ConfirmButton
            title={says.restoreTitle(plainText(app.name))}
            action={says.restore}
            isBusy={busyNow.includes("restore")}
            onConfirm={async () => restore({ stopApp: stops })}
          >
            <p>{says.restoreLoses(madeAt === undefined ? "" : momentText(timestampDate(madeAt)))}</p>
            {stops && <p>{says.restoreStops}</p>}
          </ConfirmButton>
        )}
        <ConfirmButton
          title={says.restoreNew}
          action={says.restoreNew}
          isDanger={false}
          isBusy={busyNow.includes("restoreNew")}
          onConfirm={async () => restore({ asNew: true, newName: newName.value.trim() })}
        >
          <TextField label={says.newName} hint={says.newNameHint} {...typedInto(newName)} />
        </ConfirmButton>
        <ConfirmButton
          title={says.removeTitle}
          action={says.remove}
          onConfirm={async () => {
            const { hash } = location;
            await client.deleteBackup(of);
            // Who looks at something else by now goes on with that.
            if (location.hash === hash) location.hash = pathTo("backups", of.appId);
          }}
        >
          <p>{says.removeLoses}</p>
        </ConfirmButton>
        <CancelWork of={verifying} />
        <CancelWork of={restoring} />
        <span role="status">{said.value}</span>
        {app !== undefined && <a href={pathTo("apps", of.appId)}>{says.toApp}</a>}
      </div>
      <Work of={verifying} />
      <Work of={restoring} />
      <Failure says={failure} />
    </>
  );
}
