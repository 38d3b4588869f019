/** Boot ids of a test's own: a machine that is started again, as the daemon sees it. */
import { randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface BootId extends AsyncDisposable {
  /** Gives the daemon, and all that it starts, this boot id. */
  readonly launcher: readonly string[];
  /** From the next start of the daemon on it is another. */
  renew(): Promise<void>;
}

export async function makeBootId(): Promise<BootId> {
  const dir = await mkdtemp(join(tmpdir(), "svc-boot-"));
  const file = join(dir, "boot_id");
  const renew = (): Promise<void> => writeFile(file, `${randomUUID()}\n`);
  await renew();
  const script = `mount --bind ${file} /proc/sys/kernel/random/boot_id && exec "$@"`;
  return {
    launcher: ["unshare", "--mount", "--propagation=slave", "sh", "-c", script, "sh"],
    renew,
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true }),
  };
}
