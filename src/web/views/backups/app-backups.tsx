import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { BackupArchive, BackupService, CreateBackupResponse } from "../../../../gen/svc/v1/backup_pb.ts";
import { isNotFound } from "../../api.ts";
import { useLive } from "../../live.ts";
import { useLongWork } from "../../long-work.ts";
import type { NodeView } from "../../node-view.ts";
import { Failure } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { CancelWork, Work } from "../../parts/work.tsx";
import { plainText, sentence } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { backupTexts as says } from "../../texts/backups.ts";
import { formatBytes } from "../../units.ts";
import { readArchives } from "./archives.ts";
import { Policy } from "./policy.tsx";

const { columns } = says;

interface Props {
  client: Client<typeof BackupService>;
  node: NodeView;
  appId: string;
}

/** The backups of one app, which may be gone, and how they come about. */
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
        {says.all}
      </a>
      <Heading title={says.ofApp(plainText(app?.name ?? appId))} />
      {app?.backups?.overdue === true && <p class="notice bad">{says.overdue}</p>}
      {app !== undefined && (
        <Create client={client} appId={appId} onDone={live.again}>
          <a href={pathTo("apps", appId)}>{says.toApp}</a>
        </Create>
      )}
      <Failure says={live.failure} />
      {live.value?.failed.map((storage) => (
        <p key={storage} class="notice bad">
          <Text of={storage} />
        </p>
      ))}
      {live.failure === "" && (
        <Table
          label={says.ofApp(plainText(app?.name ?? appId))}
          rows={live.value?.archives}
          keyOf={({ storage, name }) => `${storage} ${name}`}
          none={isMissing ? says.noneOfMissing : says.noneOfApp}
          columns={archiveColumns}
        />
      )}
      <Failure says={policy.failure} />
      {policy.value !== undefined && (
        <Policy client={client} appId={appId} of={policy.value} onDone={policy.again} />
      )}
    </>
  );
}

interface CreateProps extends Pick<Props, "client" | "appId"> {
  readonly onDone: () => void;
  /** Beside the button. */
  readonly children: ComponentChildren;
}

/** Makes a backup and tells how far it is. Leaving cancels it. */
function Create({ client, appId, onDone, children }: CreateProps) {
  const result = useSignal<CreateBackupResponse | undefined>(undefined);
  const work = useLongWork(
    (_accepted, signal) => client.createBackupStream({ appId }, { signal }),
    ({ value }) => (result.value = value),
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
          {says.create}
        </button>
        <CancelWork of={work} />
        {made !== undefined && failed.length < made.results.length && (
          <span role="status">{made.warnings.length === 0 ? says.created : says.createdWith}</span>
        )}
        {children}
      </div>
      <Work of={work} />
      <Failure
        says={failed.map(({ storage, error }) => says.createFailed(storage, sentence(error))).join(" ")}
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
        {encrypted && <span class="quiet">{says.encrypted}</span>}
      </>
    ),
  },
  { title: columns.storage, cell: ({ storage }) => <Text of={storage} /> },
  { title: columns.size, kind: "figure", cell: ({ sizeBytes }) => formatBytes(sizeBytes) },
  {
    title: columns.verified,
    cell: ({ verifiedAt }) => (verifiedAt === undefined ? says.never : <When at={verifiedAt} />),
  },
  {
    title: columns.proven,
    cell: ({ restoredAt }) => (restoredAt === undefined ? says.never : <When at={restoredAt} />),
  },
];
