import { useMemo } from "preact/hooks";
import { BackupService, type BackupArchive } from "../../../../gen/svc/v1/backup_pb.ts";
import type { App } from "../../../../gen/svc/v1/app_pb.ts";
import { useLive } from "../../live.ts";
import { Failure, StorageFailures } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { backupTexts as labels } from "../../texts/backups.ts";
import type { ViewProps } from "../../view-props.ts";
import { AppBackupsView } from "./app-backups.tsx";
import { readArchives } from "./archives.ts";
import { ArchiveView } from "./archive.tsx";
import { Storages } from "./storages.tsx";

const { columns } = labels;

/** `#/backups`, `#/backups/APP` and `#/backups/APP/STORAGE/NAME`, followed by a path in the archive. */
export function BackupsView({ api, node, args: [appId, storage, name, ...path] }: ViewProps) {
  const client = useMemo(() => api.client(BackupService), [api]);
  if (appId === undefined) return <Overview api={api} node={node} args={[]} />;
  if (storage === undefined || name === undefined)
    return <AppBackupsView key={appId} client={client} node={node} appId={appId} />;
  const of = { appId, storage, name };
  return (
    <ArchiveView
      key={`${appId} ${storage} ${name}`}
      client={client}
      node={node}
      of={of}
      path={path.join("/")}
    />
  );
}

/** An app, or a removed app that still has backups. */
interface Row {
  readonly id: string;
  readonly app: App | undefined;
  readonly archives: readonly BackupArchive[];
}

function Overview({ api, node }: ViewProps) {
  const client = useMemo(() => api.client(BackupService), [api]);
  const live = useLive(node, ["backup", "app"], (signal) => readArchives(client, "", signal), [client]);
  const apps = node.apps.value;
  const rows = live.value && apps && rowsOf(apps, live.value.archives);
  return (
    <>
      <Heading title={texts.backups.title} />
      <Failure message={live.failure} />
      <StorageFailures of={live.value?.failed} />
      {live.failure === "" && (
        <Table
          label={texts.backups.title}
          rows={rows}
          keyOf={({ id }) => id}
          none={labels.none}
          columns={rowColumns}
        />
      )}
      <Storages client={client} node={node} />
    </>
  );
}

const rowColumns: readonly Column<Row>[] = [
  {
    title: columns.app,
    cell: ({ id, app }) => (
      <>
        <a href={pathTo("backups", id)}>
          <Text of={app?.name ?? id} />
        </a>{" "}
        <span class="quiet">{app === undefined ? labels.gone : <Text of={id} />}</span>
      </>
    ),
  },
  {
    title: columns.newest,
    cell: ({ app, archives: [newest] }) => (
      <>
        {newest === undefined ? labels.never : <When at={newest.createdAt} />}
        {app?.backups?.overdue === true && <div class="state bad">▲ {labels.overdue}</div>}
      </>
    ),
  },
  {
    title: columns.proven,
    cell: ({ app }) => {
      const proven = app?.backups?.lastProvenAt;
      return proven === undefined ? labels.never : <When at={proven} />;
    },
  },
  { title: columns.count, kind: "figure", cell: ({ archives }) => String(archives.length) },
];

function rowsOf(apps: ReadonlyMap<string, App>, archives: readonly BackupArchive[]): Row[] {
  const byApp = Map.groupBy(archives, ({ appId }) => appId);
  return [...new Set([...apps.keys(), ...byApp.keys()])]
    .toSorted()
    .map((id) => ({ id, app: apps.get(id), archives: byApp.get(id) ?? [] }));
}
