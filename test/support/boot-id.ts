/** Boot IDs of a test: the daemon sees a reboot of the host. */
import { randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface BootId extends AsyncDisposable {
  /** Gives the daemon and its child processes this boot ID. */
  readonly launcher: readonly string[];
  /** From the next start of the daemon the boot ID is different. */
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
