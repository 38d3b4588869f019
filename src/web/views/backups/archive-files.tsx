import { useSignal } from "@preact/signals";
import type { BackupEntry } from "../../../../gen/svc/v1/backup_pb.ts";
import { useAction } from "../../action.ts";
import { isRunning } from "../../app-state.ts";
import { useLive } from "../../live.ts";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { ancestorsOf, lastOf, partsOf } from "../../path-names.ts";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { saveFile } from "../../save-file.ts";
import { backupTexts as says } from "../../texts/backups.ts";
import { formatBytes } from "../../units.ts";
import type { ArchiveProps } from "./archive-props.ts";

const { fileColumns: columns } = says;

/** What is in an archive, directory by directory. */
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
  const restored = useSignal<BackupEntry | undefined>(undefined);
  const said = useSignal("");
  const ask = (entry: BackupEntry): void => {
    restored.value = entry;
    said.value = "";
  };
  const app = node.apps.value?.get(of.appId);
  const stopApp = app !== undefined && isRunning(app);
  const linkTo = (to: string): string => pathTo("backups", of.appId, of.storage, of.name, ...partsOf(to));
  const all: readonly Column<BackupEntry>[] = [
    {
      title: columns.name,
      cell: ({ path: of, type }) => {
        // What is in a volume comes without what it is in: its name alone could be that of something else.
        const name = <Text of={path === "" ? of : of.slice(path.length + 1)} />;
        return type === "directory" ? <a href={linkTo(of)}>{name}</a> : name;
      },
    },
    {
      title: columns.size,
      kind: "figure",
      cell: ({ type, sizeBytes }) => (type === "file" ? formatBytes(sizeBytes) : ""),
    },
    { title: columns.modified, cell: ({ modifiedAt }) => <When at={modifiedAt} /> },
    {
      title: columns.actions,
      kind: "actions",
      cell: (entry) => (
        <div class="buttons">
          {entry.type === "file" && (
            <button
              type="button"
              aria-busy={busy === entry.path}
              onClick={() =>
                void perform(entry.path, (signal) =>
                  saveFile(
                    client.readBackupFile({ ...of, identity, path: entry.path }, { signal }),
                    lastOf(entry.path),
                  ),
                )
              }
            >
              {says.download}
            </button>
          )}
          {app !== undefined && (
            <button type="button" class="danger" onClick={() => ask(entry)}>
              {says.restoreOne}
            </button>
          )}
        </div>
      ),
    },
  ];
  const asked = restored.value;
  return (
    <section aria-labelledby="archive-files">
      <h2 id="archive-files">{says.browse}</h2>
      <nav class="crumbs" aria-label={says.path}>
        <a href={linkTo("")}>{says.root}</a>
        {ancestorsOf(path).map((ancestor) => (
          <a key={ancestor} href={linkTo(ancestor)} aria-current={ancestor === path ? "page" : undefined}>
            <Text of={lastOf(ancestor)} />
          </a>
        ))}
      </nav>
      <Failure says={live.failure} />
      <Failure says={failure} />
      <p role="status">{said.value}</p>
      {live.failure === "" && (
        <Table
          label={says.browse}
          rows={live.value}
          keyOf={({ path: of }) => of}
          none={says.emptyFolder}
          columns={all}
        />
      )}
      {asked !== undefined && (
        <Confirm
          title={says.restoreOneTitle(plainText(asked.path))}
          action={says.restoreOne}
          onClose={() => (restored.value = undefined)}
          onConfirm={async (signal) => {
            const wanted = { ...of, identity, paths: [asked.path], stopApp };
            await client.restoreBackup(wanted, { signal });
            said.value = says.restoredOne(plainText(asked.path));
          }}
        >
          <p>{says.restoreOneLoses}</p>
          {stopApp && <p>{says.restoreStops}</p>}
        </Confirm>
      )}
    </section>
  );
}
