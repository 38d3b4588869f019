/** The apps of a command that takes several IDs or `--all`. */
import { calls } from "./client/calls.ts";
import type { CommandContext } from "./context.ts";
import { UsageError } from "./output/failure.ts";
import { pagesOf } from "./pages.ts";

export interface AllOption {
  readonly all?: boolean;
}

/** @throws UsageError unless the line has either IDs or `--all` */
export async function chosenIds(
  context: CommandContext,
  named: readonly string[],
  { all = false }: AllOption,
): Promise<readonly string[]> {
  if (all === named.length > 0) throw new UsageError("name the apps, or pass --all");
  if (!all) return named;
  const ids: string[] = [];
  for await (const { apps } of pagesOf(context, calls.listApps, {})) ids.push(...apps.map(({ id }) => id));
  return ids;
}
