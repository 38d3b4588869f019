import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import {
  CreateBackupResponseSchema,
  type BackupArchive,
  type BackupService,
  type CreateBackupResponse,
} from "../../../../gen/svc/v1/backup_pb.ts";
import { isNotFound } from "../../api.ts";
import { useLive } from "../../live.ts";
import { useLongWork } from "../../long-work.ts";
import type { NodeView } from "../../node-view.ts";
import { Failure, StorageFailures } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { RunningOperations } from "../../parts/running-operations.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { CancelWork, Work } from "../../parts/work.tsx";
import { plainText, sentence } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { backupTexts as labels } from "../../texts/backups.ts";
import { formatBytes } from "../../units.ts";
import { readArchives } from "./archives.ts";
import { Policy } from "./policy.tsx";

const { columns } = labels;

interface Props {
  client: Client<typeof BackupService>;
  node: NodeView;
  appId: string;
}

/** The backups of one app, which may have been removed, and its policy. */
export function AppBackupsView({ client, node, appId }: Props) {
  const app = node.apps.value?.get(appId);
  const isMissing = node.apps.value !== undefined && app === undefined;
  const live = useLive(node, ["backup"], (signal) => readArchives(client, appId, signal), [client, appId]);
  const policy = useLive(
    node,
    ["backup"],
    async (signal) => {
      try {
        return await client.getBackupPolicy({ appId }, { signal });
      } catch (error) {
        if (isNotFound(error)) return undefined;
        throw error;
      }
    },
    [client, appId],
  );
  return (
    <>
      <a class="back" href={pathTo("backups")}>
        {labels.all}
      </a>
      <Heading title={labels.ofApp(plainText(app?.name ?? appId))} />
      {app?.backups?.overdue === true && <p class="notice bad">{labels.overdue}</p>}
      {app !== undefined && (
        <Create client={client} node={node} appId={appId} onDone={live.reload}>
          <a href={pathTo("apps", appId)}>{labels.toApp}</a>
        </Create>
      )}
      <Failure message={live.failure} />
      <StorageFailures of={live.value?.failed} />
      {live.failure === "" && (
        <Table
          label={labels.ofApp(plainText(app?.name ?? appId))}
          rows={live.value?.archives}
          keyOf={({ storage, name }) => `${storage} ${name}`}
          none={isMissing ? labels.noneOfMissing : labels.noneOfApp}
          columns={archiveColumns}
        />
      )}
      <Failure message={policy.failure} />
      {policy.value !== undefined && (
        <Policy client={client} appId={appId} of={policy.value} onDone={policy.reload} />
      )}
    </>
  );
}

interface CreateProps extends Pick<Props, "client" | "node" | "appId"> {
  readonly onDone: () => void;
  /** Content next to the button. */
  readonly children: ComponentChildren;
}

/** Creates a backup and shows its progress. */
function Create({ client, node, appId, onDone, children }: CreateProps) {
  const result = useSignal<CreateBackupResponse | undefined>(undefined);
  const work = useLongWork(
    node.operations,
    CreateBackupResponseSchema,
    (_accepted, signal) => client.createBackup({ appId, detach: true }, { signal }),
    (response) => (result.value = response),
  );
  const create = async (): Promise<void> => {
    if (!work.isBusy) result.value = undefined;
    await work.run();
    onDone();
  };
  const made = result.value;
  const failed = made?.results.filter(({ error }) => error !== "") ?? [];
  return (
    <>
      <div class="row">
        <button type="button" class="primary" aria-busy={work.isBusy} onClick={() => void create()}>
          {labels.create}
        </button>
        <CancelWork of={work} />
        {made !== undefined && failed.length < made.results.length && (
          <span role="status">{made.warnings.length === 0 ? labels.created : labels.createdWith}</span>
        )}
        {children}
      </div>
      <Work of={work} />
      {!work.isBusy && <RunningOperations node={node} appId={appId} />}
      <Failure
        message={failed.map(({ storage, error }) => labels.createFailed(storage, sentence(error))).join(" ")}
      />
      {made !== undefined && made.warnings.length > 0 && <Warnings of={made.warnings} />}
    </>
  );
}

export function Warnings({ of }: { of: readonly string[] }) {
  return (
    <ul>
      {of.map((warning) => (
        <li key={warning}>
          <Text of={sentence(warning)} />
        </li>
      ))}
    </ul>
  );
}

const archiveColumns: readonly Column<BackupArchive>[] = [
  {
    title: columns.made,
    cell: ({ appId, storage, name, createdAt, encrypted }) => (
      <>
        <a href={pathTo("backups", appId, storage, name)}>
          <When at={createdAt} />
        </a>{" "}
        {encrypted && <span class="quiet">{labels.encrypted}</span>}
      </>
    ),
  },
  { title: columns.storage, cell: ({ storage }) => <Text of={storage} /> },
  { title: columns.size, kind: "figure", cell: ({ sizeBytes }) => formatBytes(sizeBytes) },
  {
    title: columns.verified,
    cell: ({ verifiedAt }) => (verifiedAt === undefined ? labels.never : <When at={verifiedAt} />),
  },
  {
    title: columns.proven,
    cell: ({ restoredAt }) => (restoredAt === undefined ? labels.never : <When at={restoredAt} />),
  },
];
