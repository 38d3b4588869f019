import { useSignal } from "@preact/signals";
import { RestoreBackupResponseSchema, type BackupEntry } from "../../../../gen/svc/v1/backup_pb.ts";
import { useAction } from "../../action.ts";
import { isRunning } from "../../app-state.ts";
import { useLive } from "../../live.ts";
import { useLongWork } from "../../long-work.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Download, sizeAndTime } from "../../parts/file-table.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { CancelWork, Work } from "../../parts/work.tsx";
import { ancestorsOf, lastOf, partsOf } from "../../names.ts";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { backupTexts as labels } from "../../texts/backups.ts";
import { fileTexts } from "../../texts/files.ts";
import { UserFacingError } from "../../user-facing-error.ts";
import type { ArchiveProps } from "./archive-props.ts";

/** The files of an archive, directory by directory. */
export function ArchiveFiles({ client, node, of, identity, path }: ArchiveProps & { path: string }) {
  const live = useLive(
    node,
    [],
    async (signal) => {
      const found: BackupEntry[] = [];
      let pageToken = "";
      do {
        const page = await client.browseBackup({ ...of, identity, path, pageToken }, { signal });
        found.push(...page.entries);
        pageToken = page.nextPageToken;
      } while (pageToken !== "");
      return found;
    },
    [client, identity, path],
  );
  const { busy, failure, perform } = useAction();
  const toRestore = useSignal<BackupEntry | undefined>(undefined);
  /** Path of the entry that is restored. */
  const restored = useSignal("");
  const notice = useSignal("");
  const ask = (entry: BackupEntry): void => {
    toRestore.value = entry;
    notice.value = "";
  };
  const app = node.apps.value?.get(of.appId);
  const stopApp = app !== undefined && isRunning(app);
  const restoring = useLongWork(
    node.operations,
    RestoreBackupResponseSchema,
    (accepted, signal) => {
      const request = { ...of, identity, paths: [restored.value], stopApp, ...accepted, detach: true };
      return client.restoreBackup(request, { signal });
    },
    () => (notice.value = labels.restoredOne(plainText(restored.value))),
  );
  /** Called after the confirmation; the page reports the progress. */
  const restore = ({ path: entryPath }: BackupEntry): Promise<void> => {
    if (restoring.isBusy) throw new UserFacingError(texts.work.busy);
    restored.value = entryPath;
    void restoring.run();
    return Promise.resolve();
  };
  const linkTo = (to: string): string => pathTo("backups", of.appId, of.storage, of.name, ...partsOf(to));
  const all: readonly Column<BackupEntry>[] = [
    {
      title: fileTexts.columns.name,
      cell: ({ path: of, type }) => {
        // Entries of a volume are listed without their directory, so their full path is shown.
        const name = <Text of={path === "" ? of : of.slice(path.length + 1)} />;
        return type === "directory" ? <a href={linkTo(of)}>{name}</a> : name;
      },
    },
    ...sizeAndTime,
    {
      title: fileTexts.columns.actions,
      kind: "actions",
      cell: (entry) => (
        <div class="buttons">
          {entry.type === "file" && (
            <Download
              {...{ busy, perform, path: entry.path, name: lastOf(entry.path) }}
              read={(signal) => client.readBackupFile({ ...of, identity, path: entry.path }, { signal })}
            />
          )}
          {app !== undefined && (
            <button
              type="button"
              class="danger"
              aria-busy={restoring.isBusy && restored.value === entry.path}
              onClick={() => ask(entry)}
            >
              {labels.restoreOne}
            </button>
          )}
        </div>
      ),
    },
  ];
  const entry = toRestore.value;
  return (
    <section aria-labelledby="archive-files">
      <h2 id="archive-files">{labels.browse}</h2>
      <nav class="crumbs" aria-label={labels.path}>
        <a href={linkTo("")}>{labels.root}</a>
        {ancestorsOf(path).map((ancestor) => (
          <a key={ancestor} href={linkTo(ancestor)} aria-current={ancestor === path ? "page" : undefined}>
            <Text of={lastOf(ancestor)} />
          </a>
        ))}
      </nav>
      <Failure message={live.failure} />
      <Failure message={failure} />
      <div class="row">
        <CancelWork of={restoring} />
        <span role="status">{notice.value}</span>
      </div>
      <Work of={restoring} />
      {live.failure === "" && (
        <Table
          label={labels.browse}
          rows={live.value}
          keyOf={({ path: of }) => of}
          none={labels.emptyFolder}
          columns={all}
        />
      )}
      {entry !== undefined && (
        <Confirm
          title={labels.restoreOneTitle(plainText(entry.path))}
          action={labels.restoreOne}
          onClose={() => (toRestore.value = undefined)}
          onConfirm={async () => restore(entry)}
        >
          <p>{labels.restoreOneLoses}</p>
          {stopApp && <p>{labels.restoreStops}</p>}
        </Confirm>
      )}
    </section>
  );
}
