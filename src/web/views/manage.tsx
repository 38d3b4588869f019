import { useSignal } from "@preact/signals";
import { useEffect, useId, useMemo } from "preact/hooks";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { App, UpgradeAppEvent, UpgradeAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { describeError, isCanceled, reasonOf, type Api } from "../api.ts";
import { LongWork } from "../long-work.ts";
import { Confirm } from "../parts/confirm.tsx";
import { CancelWork, Work } from "../parts/work.tsx";
import { plainText } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import { ToldError } from "../told-error.ts";
import { formatBytes } from "../units.ts";

const { manage } = texts;

/** What was cancelled goes on in the daemon until it has put everything back. */
const startAgainMs = 500;
const startTries = 120;

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

function Upgrade({ api, app: { id, version } }: Props) {
  const field = useId();
  const typed = useSignal("");
  const backup = useSignal(false);
  /** As it was submitted: a yes is to what was shown, whatever is typed meanwhile. */
  const wanted = useSignal<{ version: string; backup?: boolean }>({ version: "" });
  const said = useSignal("");
  const work = useMemo(
    () =>
      new LongWork(
        (accepted, signal) =>
          upgrade(
            api,
            { id, ...wanted.value, ...accepted },
            { signal, onLeftStopped: (says) => (said.value = says) },
          ),
        ({ value: { upToDate, from, to } }) =>
          void (said.value = upToDate ? manage.upToDate(to) : manage.upgraded(from, to)),
      ),
    [api, id],
  );
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    if (work.isBusy) return;
    said.value = "";
    // What is not asked for is as the daemon has it.
    wanted.value = { version: typed.value.trim(), ...(backup.value && { backup: true }) };
    await work.run();
    if (work.failure.value !== "" && said.value === "") said.value = manage.stays(plainText(version));
  };
  return (
    <details>
      <summary>{manage.upgradeTitle}</summary>
      <form class="settings" onSubmit={(event) => void submit(event)}>
        <div class="field">
          <label for={field}>{manage.version}</label>
          <input
            id={field}
            type="text"
            autocomplete="off"
            spellcheck={false}
            aria-describedby={`${field}-hint`}
            value={typed.value}
            onInput={({ currentTarget }) => (typed.value = currentTarget.value)}
          />
          <p class="quiet" id={`${field}-hint`}>
            <bdi>{manage.versionHint(plainText(version))}</bdi>
          </p>
        </div>
        <label>
          <input
            type="checkbox"
            checked={backup.value}
            onChange={({ currentTarget }) => (backup.value = currentTarget.checked)}
          />{" "}
          {manage.backup}
        </label>
        <p class="quiet">{manage.upgradeHint}</p>
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {manage.upgrade}
          </button>
          <CancelWork of={work} />
          <span role="status">
            <bdi>{plainText(said.value)}</bdi>
          </span>
        </div>
      </form>
      <Work of={work} />
    </details>
  );
}

interface UpgradeOptions {
  signal: AbortSignal;
  /** Told besides why the upgrade failed. */
  onLeftStopped: (says: string) => void;
}

/** What runs is stopped meanwhile, and runs again whatever became of it. */
async function* upgrade(
  api: Api,
  request: MessageInitShape<typeof UpgradeAppRequestSchema> & { id: string },
  { signal, onLeftStopped }: UpgradeOptions,
): AsyncGenerator<UpgradeAppEvent, void> {
  const { id } = request;
  const { state } = await api.apps.getApp({ id }, { signal });
  const isUp = state === "RUNNING" || state === "STARTING";
  if (isUp) await api.apps.stopApp({ id });
  try {
    yield* api.apps.upgradeAppStream(request, { signal });
  } catch (error) {
    if (!isUp) throw error;
    try {
      await startAgain(api, id);
    } catch (stopped) {
      const says = manage.leftStopped(describeError(stopped));
      // Not everything is as it was before.
      if (isCanceled(error)) throw new ToldError(says, { cause: stopped });
      onLeftStopped(says);
    }
    throw error;
  }
  if (isUp) await startAgain(api, id);
}

/** Once the daemon is done with the app. */
async function startAgain(api: Api, id: string): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await api.apps.startApp({ id });
      return;
    } catch (error) {
      if (reasonOf(error) !== "app_busy" || tries === startTries) throw error;
      await new Promise((resolve) => setTimeout(resolve, startAgainMs));
    }
  }
}

function Copy({ api, app: { id } }: Props) {
  const field = useId();
  const name = useSignal("");
  const share = useSignal(false);
  const copied = useSignal<{ id: string; says: string } | undefined>(undefined);
  const work = useMemo(
    () =>
      new LongWork(
        (_accepted, signal) =>
          api.apps.cloneAppStream({ id, name: name.value.trim(), shareVolumes: share.value }, { signal }),
        ({ value }) =>
          void (copied.value = {
            id: value.id,
            says: manage.copied(value.name, formatBytes(value.copiedBytes)),
          }),
      ),
    [api, id],
  );
  useEffect(() => () => work.cancel(), [work]);
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    copied.value = undefined;
    void work.run();
  };
  return (
    <details>
      <summary>{manage.copyTitle}</summary>
      <form class="settings" onSubmit={submit}>
        <div class="field">
          <label for={field}>{manage.copyName}</label>
          <input
            id={field}
            type="text"
            autocomplete="off"
            aria-describedby={`${field}-hint`}
            value={name.value}
            onInput={({ currentTarget }) => (name.value = currentTarget.value)}
          />
          <p class="quiet" id={`${field}-hint`}>
            {manage.copyHint}
          </p>
        </div>
        <label>
          <input
            type="checkbox"
            checked={share.value}
            onChange={({ currentTarget }) => (share.value = currentTarget.checked)}
          />{" "}
          {manage.share}
        </label>
        <div class="row">
          <button type="submit" aria-busy={work.isBusy}>
            {manage.copy}
          </button>
          <CancelWork of={work} />
          {copied.value !== undefined && (
            <span role="status">
              <bdi>{plainText(copied.value.says)}</bdi>{" "}
              <a href={pathTo("apps", copied.value.id)}>{manage.look}</a>
            </span>
          )}
        </div>
      </form>
      <Work of={work} />
    </details>
  );
}

function Remove({ api, app: { id, name, state } }: Props) {
  const isAsked = useSignal(false);
  const backup = useSignal(false);
  const lost = useSignal(manage.lostUnknown);
  const ask = (): void => {
    isAsked.value = true;
    lost.value = manage.lostUnknown;
    api.apps.getAppDisk({ id }).then(
      ({ totalBytes }) => (lost.value = manage.lost(formatBytes(totalBytes))),
      () => undefined,
    );
  };
  const remove = async (signal: AbortSignal): Promise<void> => {
    if (backup.value) await api.client(BackupService).createBackup({ appId: id }, { signal });
    signal.throwIfAborted();
    await api.apps.removeApp({ id });
    // The dialog may have gone with the app; who looks at something else by now goes on with that.
    if (location.hash === pathTo("apps", id)) location.hash = pathTo("apps");
  };
  return (
    <>
      <button type="button" class="danger" onClick={ask}>
        {manage.remove}
      </button>
      {isAsked.value && (
        <Confirm
          title={plainText(manage.removing(name))}
          action={manage.remove}
          typed={id}
          onConfirm={remove}
          onClose={() => (isAsked.value = false)}
        >
          <p>{lost.value}</p>
          {state === "RUNNING" && <p>{manage.stopsFirst}</p>}
          <p>{manage.jobs}</p>
          <label>
            <input
              type="checkbox"
              checked={backup.value}
              onChange={({ currentTarget }) => (backup.value = currentTarget.checked)}
            />{" "}
            {manage.keep}
          </label>
        </Confirm>
      )}
    </>
  );
}
