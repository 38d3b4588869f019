/** Checks whether an app can be transferred to another node. */
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { acceptingLicenses, type Accepted } from "../input/accept-license.ts";
import { confirmRemoval } from "../input/prompt.ts";
import { localNode } from "../nodes/node-file.ts";
import { ifFound } from "../output/failure.ts";
import { formatBytes } from "../output/units.ts";
import { calls, type App } from "../client/calls.ts";

export interface TransferPlan {
  readonly id: string;
  /** Size of the app in bytes. */
  readonly total_bytes: number;
  readonly available_bytes: number;
  /** Whether the other node has an app with this ID. */
  readonly exists: boolean;
  /** User ID and name on both nodes. */
  readonly owner: number;
  readonly owner_name: string;
  /** Adopted volumes and paths that are not transferred. */
  readonly left_behind: readonly string[];
}

/** @throws SvcError the first obstacle */
export async function planTransfer(
  from: CommandContext,
  to: CommandContext,
  id: string,
): Promise<TransferPlan> {
  const [app, disk, status, report, existing] = await Promise.all([
    from.call(calls.getApp, { id }),
    from.call(calls.getAppDisk, { id }),
    to.call(calls.getStatus, {}),
    to.call(calls.getDiskReport, {}),
    findApp(to, id),
  ]);
  if (!status.capabilities.includes("backups.upload")) {
    throw new SvcError("not_possible", "the daemon there is too old to receive archives; upgrade it");
  }
  const available = report.filesystem?.available_bytes ?? 0;
  if (disk.total_bytes > available) {
    throw new SvcError(
      "not_possible",
      `${id} needs ${formatBytes(disk.total_bytes)}, but only ${formatBytes(available)} are free there`,
    );
  }
  const { owner, owner_name, adopted } = app;
  return {
    id,
    total_bytes: disk.total_bytes,
    available_bytes: available,
    exists: existing !== undefined,
    owner,
    owner_name,
    left_behind: adopted?.left_behind ?? [],
  };
}

/** Asks whether to transfer an app without adopted data that stays here, unless `--yes` is set. */
export async function confirmLeftBehind(context: CommandContext, plan: TransferPlan): Promise<void> {
  const loss = leftBehindText(plan);
  if (loss === "") return;
  if (context.options.yes === true) context.note(`warning: ${loss}`);
  else await confirmRemoval(context, { question: `${loss}. Continue?`, loss });
}

/**
 * Requires consent before an app of another user arrives from another node: that node chooses the user, and
 * what runs as the user. Target nodes ask themselves for apps of root.
 * @param from name of the source node
 */
export async function acceptOwner(
  to: CommandContext,
  { id, owner }: Pick<App, "id" | "owner">,
  { from, accepted }: { readonly from: string; readonly accepted: Accepted },
): Promise<void> {
  if (from === localNode || owner === 0) return;
  const { caller } = await to.call(calls.getStatus, {});
  if (caller?.uid === owner) return;
  const permission = `The app will run as uid ${owner}, a user that ${from} chose.`;
  await acceptingLicenses(to, id, accepted, ({ permissionsAck }) => {
    if (permissionsAck) return Promise.resolve();
    const payload = { permissions: [permission] };
    throw new SvcError("license_required", `${id} needs consent: ${permission}`, { payload });
  });
}

function leftBehindText({ id, left_behind: left }: TransferPlan): string {
  return left.length === 0 ? "" : `adopted data of ${id} stays on this node: ${left.join(", ")}`;
}

/** The app with exactly this ID, if there is one. */
export async function findApp(node: CommandContext, id: string): Promise<App | undefined> {
  const app = await ifFound(node.call(calls.getApp, { id }));
  // At a terminal, `call` also accepts the prefix of another app's ID.
  return app?.id === id ? app : undefined;
}

/** @param what what would happen to the app, and where */
export function printPlan(context: CommandContext, plan: TransferPlan, what: string): Promise<void> {
  const size = `${formatBytes(plan.total_bytes)}, ${formatBytes(plan.available_bytes)} are free there`;
  const owner = plan.owner_name === "" ? plan.owner : plan.owner_name;
  const text = `${plan.id} ${what} (${size})${plan.exists ? " under another id" : ""}; its owner there is ${owner}`;
  const left = leftBehindText(plan);
  return context.printResult(plan, left === "" ? text : `${text}; ${left}`);
}
