import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { App, AppSettings, UpgradeAppEvent } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import type { Api } from "../api.ts";
import { isRunning } from "../app-state.ts";
import { useLongWork } from "../long-work.ts";
import { ConfirmButton } from "../parts/confirm.tsx";
import { CheckField, TextField, tickedInto, typedInto } from "../parts/field.tsx";
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
}

/** What changes an app as a whole. */
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

function Upgrade({ api, app }: Props) {
  const { id, version, availableVersion = "" } = app;
  const typed = useSignal("");
  const backup = useSignal(false);
  /** As it was submitted: a yes is to what was shown, whatever is typed meanwhile. */
  const wanted = useSignal<{ version: string; backup?: boolean }>({ version: "" });
  const said = useSignal("");
  const changes = useSignal<readonly string[]>([]);
  /** What it can go back to: a tag. */
  const previous = useSignal("");
  const isBack = useSignal(false);
  /** Its settings at the version before. */
  const before = useSignal<AppSettings | undefined>(undefined);
  const work = useLongWork(
    async function* (accepted, signal): AsyncGenerator<UpgradeAppEvent> {
      before.value = await api.apps.getAppSettings({ id }, { signal }).catch(() => undefined);
      yield* api.apps.upgradeAppStream({ id, stopApp: true, ...wanted.value, ...accepted }, { signal });
    },
    ({ value: { upToDate, from, to } }) => {
      const moved = isBack.value ? manage.wentBack(from, to) : manage.upgraded(from, to);
      const changed = from === to ? manage.takenAnew(to) : moved;
      said.value = upToDate ? manage.upToDate(to) : changed;
      const old = before.value;
      previous.value = upToDate || from === to || app.origin?.tag === "" ? "" : from;
      if (upToDate || old === undefined) return;
      // It is upgraded, whether its settings can be read or not.
      api.apps.getAppSettings({ id }).then(
        (now) => (changes.value = settingChanges(old, now)),
        () => undefined,
      );
    },
  );
  const goTo = async (to: string, back = false): Promise<void> => {
    if (!work.mayBegin()) return;
    isBack.value = back;
    [said.value, changes.value, previous.value] = ["", [], ""];
    // What is not asked for is as the daemon has it.
    wanted.value = { version: to, ...(backup.value && { backup: true }) };
    await work.run();
    if (work.failure.value !== "" && said.value === "") said.value = manage.stays(plainText(version));
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
          {...typedInto(typed)}
        />
        <CheckField label={manage.backup} {...tickedInto(backup)} />
        <p class="quiet">{manage.upgradeHint}</p>
        {isRunning(app) && <p>{manage.upgradeStops}</p>}
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {manage.upgrade}
          </button>
          <CancelWork of={work} />
          <span role="status">
            <Text of={said.value} />
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

function Copy({ api, app: { id } }: Props) {
  const name = useSignal("");
  const share = useSignal(false);
  const copied = useSignal<{ id: string; says: string } | undefined>(undefined);
  const work = useLongWork(
    (_accepted, signal) =>
      api.apps.cloneAppStream({ id, name: name.value.trim(), shareVolumes: share.value }, { signal }),
    ({ value }) =>
      void (copied.value = {
        id: value.id,
        says: manage.copied(value.name, formatBytes(value.copiedBytes)),
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
        <TextField label={manage.copyName} hint={manage.copyHint} {...typedInto(name)} />
        <CheckField label={manage.share} {...tickedInto(share)} />
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {manage.copy}
          </button>
          <CancelWork of={work} />
          {copied.value !== undefined && (
            <span role="status">
              <Text of={copied.value.says} /> <a href={pathTo("apps", copied.value.id)}>{manage.look}</a>
            </span>
          )}
        </div>
      </form>
      <Work of={work} />
    </details>
  );
}

function Remove({ api, app }: Props) {
  const { id, name } = app;
  const backup = useSignal(false);
  const remove = async (signal: AbortSignal): Promise<void> => {
    if (backup.value) await api.client(BackupService).createBackup({ appId: id }, { signal });
    signal.throwIfAborted();
    await api.apps.removeApp({ id });
    // The dialog may have gone with the app; who looks at something else by now goes on with that.
    if (location.hash === pathTo("apps", id)) location.hash = pathTo("apps");
  };
  return (
    <ConfirmButton
      title={plainText(manage.removing(name))}
      action={manage.remove}
      typed={id}
      onConfirm={remove}
    >
      <Lost api={api} id={id} />
      {isRunning(app) && <p>{manage.stopsFirst}</p>}
      <p>{manage.jobs}</p>
      <CheckField label={manage.keep} {...tickedInto(backup)} />
    </ConfirmButton>
  );
}

/** What goes with an app, and how much that is as soon as it is measured. */
function Lost({ api, id }: { api: Api; id: string }) {
  const says = useSignal(manage.lostUnknown);
  useEffect(() => {
    api.apps.getAppDisk({ id }).then(
      ({ totalBytes }) => (says.value = manage.lost(formatBytes(totalBytes))),
      () => undefined,
    );
  }, []);
  return <p>{says.value}</p>;
}
