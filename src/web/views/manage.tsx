import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import {
  CloneAppResponseSchema,
  UpgradeAppResponseSchema,
  type App,
  type AppSettings,
} from "../../../gen/svc/v1/app_pb.ts";
import { BackupService, CreateBackupResponseSchema } from "../../../gen/svc/v1/backup_pb.ts";
import type { Api } from "../api.ts";
import { adoptedItems, isRunning } from "../app-state.ts";
import { useLongWork } from "../long-work.ts";
import type { NodeView } from "../node-view.ts";
import { ConfirmButton } from "../parts/confirm.tsx";
import { AppNameField } from "../parts/app-name-field.tsx";
import { CheckField, TextField, bindCheckbox, bindText } from "../parts/field.tsx";
import { Text } from "../parts/text.tsx";
import { CancelWork, Work } from "../parts/work.tsx";
import { plainText } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { settingChanges } from "../settings-form.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";

const { manage } = texts;

interface Props {
  readonly api: Api;
  readonly app: App;
  readonly node: NodeView;
}

/** Upgrade, copy and removal of an app. */
export function ManageView(props: Props) {
  return (
    <section class="card" aria-labelledby="manage">
      <h2 id="manage">{manage.title}</h2>
      <Upgrade {...props} />
      <Copy {...props} />
      <Remove {...props} />
    </section>
  );
}

function Upgrade({ api, app, node }: Props) {
  const { id, version, availableVersion = "" } = app;
  const typed = useSignal("");
  const backup = useSignal(false);
  /** The submitted values: consent applies to these, even if the user has typed something else since. */
  const submitted = useSignal<{ version: string; backup?: boolean }>({ version: "" });
  const notice = useSignal("");
  const changes = useSignal<readonly string[]>([]);
  /** The tag for a rollback. */
  const previous = useSignal("");
  const isBack = useSignal(false);
  /** Settings of the previous version. */
  const before = useSignal<AppSettings | undefined>(undefined);
  const work = useLongWork(
    node.operations,
    UpgradeAppResponseSchema,
    async (accepted, signal) => {
      before.value = await api.apps.getAppSettings({ id }, { signal }).catch(() => undefined);
      const request = { id, stopApp: true, ...submitted.value, ...accepted, detach: true };
      return api.apps.upgradeApp(request, { signal });
    },
    ({ upToDate, from, to }) => {
      const moved = isBack.value ? manage.rolledBack(from, to) : manage.upgraded(from, to);
      const changed = from === to ? manage.reinstalled(to) : moved;
      notice.value = upToDate ? manage.upToDate(to) : changed;
      const old = before.value;
      previous.value = upToDate || from === to || app.origin?.tag === "" ? "" : from;
      if (upToDate || old === undefined) return;
      // The upgrade starts even if the settings cannot be read.
      api.apps.getAppSettings({ id }).then(
        (now) => (changes.value = settingChanges(old, now)),
        () => undefined,
      );
    },
  );
  const goTo = async (to: string, back = false): Promise<void> => {
    if (!work.mayStart()) return;
    isBack.value = back;
    [notice.value, changes.value, previous.value] = ["", [], ""];
    // Omitted fields use the daemon's defaults.
    submitted.value = { version: to, ...(backup.value && { backup: true }) };
    await work.run();
    if (work.failure.value !== "" && notice.value === "") notice.value = manage.stays(plainText(version));
  };
  return (
    <details>
      <summary>{manage.upgradeTitle}</summary>
      <form
        class="settings"
        onSubmit={(event) => {
          event.preventDefault();
          void goTo(typed.value.trim());
        }}
      >
        <TextField
          label={manage.version}
          hint={<Text of={manage.versionHint(version, availableVersion)} />}
          {...bindText(typed)}
        />
        <CheckField label={manage.backup} {...bindCheckbox(backup)} />
        <p class="quiet">{manage.upgradeHint}</p>
        {isRunning(app) && <p>{manage.upgradeStops}</p>}
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {manage.upgrade}
          </button>
          <CancelWork of={work} />
          <span role="status">
            <Text of={notice.value} />
          </span>
          {previous.value !== "" && (
            <button type="button" onClick={() => void goTo(previous.value, !isBack.value)}>
              <Text of={(isBack.value ? manage.goForth : manage.goBack)(previous.value)} />
            </button>
          )}
        </div>
      </form>
      {changes.value.length > 0 && (
        <ul aria-label={manage.changedSettings}>
          {changes.value.map((change) => (
            <li key={change}>
              <Text of={change} />
            </li>
          ))}
        </ul>
      )}
      <Work of={work} />
    </details>
  );
}

function Copy({ api, app: { id }, node }: Props) {
  const name = useSignal("");
  const share = useSignal(false);
  const copied = useSignal<{ id: string; message: string } | undefined>(undefined);
  const work = useLongWork(
    node.operations,
    CloneAppResponseSchema,
    (_accepted, signal) => {
      const request = { id, name: name.value.trim(), shareVolumes: share.value, detach: true };
      return api.apps.cloneApp(request, { signal });
    },
    (copy) =>
      void (copied.value = {
        id: copy.id,
        message: manage.copied(copy.name, formatBytes(copy.copiedBytes)),
      }),
  );
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    copied.value = undefined;
    void work.run();
  };
  return (
    <details>
      <summary>{manage.copyTitle}</summary>
      <form class="settings" onSubmit={submit}>
        <AppNameField label={manage.copyName} hint={manage.copyHint} {...{ name, node }} />
        <CheckField label={manage.share} {...bindCheckbox(share)} />
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {manage.copy}
          </button>
          <CancelWork of={work} />
          {copied.value !== undefined && (
            <span role="status">
              <Text of={copied.value.message} />{" "}
              <a href={pathTo("apps", copied.value.id)}>{manage.openCopy}</a>
            </span>
          )}
        </div>
      </form>
      <Work of={work} />
    </details>
  );
}

function Remove({ api, app, node }: Props) {
  const { id, name } = app;
  const backup = useSignal(false);
  const remove = async (signal: AbortSignal): Promise<void> => {
    if (backup.value) {
      const started = await api.client(BackupService).createBackup({ appId: id, detach: true }, { signal });
      await node.operations.finish(started, CreateBackupResponseSchema, signal);
    }
    signal.throwIfAborted();
    await api.apps.removeApp({ id });
    // The dialog may have closed with the app. Do not navigate if the user has opened another view.
    if (location.hash === pathTo("apps", id)) location.hash = pathTo("apps");
  };
  return (
    <ConfirmButton
      title={plainText(manage.removing(name))}
      action={manage.remove}
      typed={id}
      onConfirm={remove}
    >
      <Lost api={api} app={app} />
      {isRunning(app) && <p>{manage.stopsFirst}</p>}
      <p>{manage.jobs}</p>
      <CheckField label={manage.keep} {...bindCheckbox(backup)} />
    </ConfirmButton>
  );
}

/** The data that the removal deletes, with its size once measured, and the adopted data that stays. */
function Lost({ api, app }: { api: Api; app: App }) {
  const loss = useSignal(manage.lostUnknown);
  const kept = adoptedItems(app);
  useEffect(() => {
    api.apps.getAppDisk({ id: app.id }).then(
      ({ removableBytes }) => {
        loss.value = manage.lost(formatBytes(removableBytes));
      },
      () => undefined,
    );
  }, []);
  return (
    <>
      <p>{loss.value}</p>
      {kept.length > 0 && (
        <p>
          <Text of={manage.keeps(kept.join(", "))} />
        </p>
      )}
    </>
  );
}
