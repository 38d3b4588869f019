/** Parts of a host that stacks expect, as stand-ins where the test's host lacks them. */
import { readFileSync } from "node:fs";
import { access, chmod, chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { execFile } from "node:child_process";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Creates device nodes that the host lacks as copies of `/dev/null`; they are removed at the end with the directories
 * that were made for them.
 */
export async function supplyDevices(paths: readonly string[]): Promise<AsyncDisposable> {
  const made: string[] = [];
  for (const path of paths) {
    const isThere = await access(path).then(
      () => true,
      () => false,
    );
    if (isThere) continue;
    const first = await mkdir(dirname(path), { recursive: true });
    await run("mknod", ["--mode=666", path, "c", "1", "3"]);
    made.push(first ?? path);
  }
  return {
    [Symbol.asyncDispose]: async () => {
      for (const path of made) await rm(path, { recursive: true, force: true });
    },
  };
}

/** A directory of media that belongs to nobody's app. */
export async function makeMedia(directory: string): Promise<string> {
  const media = join(directory, "media");
  await mkdir(media);
  await writeFile(join(media, "film"), "frames\n");
  await chown(media, 1000, 1000);
  return media;
}

/** Capabilities that hosts in a container usually lack, by their bit. */
const dispensable: readonly (readonly [bit: bigint, name: string])[] = [
  [1n << 16n, "CAP_SYS_MODULE"],
  [1n << 24n, "CAP_SYS_RESOURCE"],
];
const missing = missingCapabilities();

/** Whether containers can be privileged here, with {@link boundedRuntime}. */
export const canBePrivileged = (missing & ~dispensable.reduce((all, [bit]) => all | bit, 0n)) === 0n;

/** Arguments of an engine on a host that lacks capabilities: its privileged containers lack them, too. */
export async function boundedRuntime(): Promise<string[]> {
  const lacking = dispensable.filter(([bit]) => (missing & bit) !== 0n);
  if (lacking.length === 0 || !canBePrivileged) return [];
  const script = join(await mkdtemp(join(tmpdir(), "svc-runtime-")), "bounded");
  const filter = lacking.map(([, name]) => `s/"${name}",//g; s/,"${name}"//g`).join("; ");
  await writeFile(
    script,
    `#!/bin/sh
before=
for each; do
  case $before in
    --bundle) sed -i '${filter}' "$each/config.json" ;;
    --process) sed -i '${filter}' "$each" ;;
  esac
  before=$each
done
exec runc "$@"
`,
  );
  await chmod(script, 0o755);
  return ["--add-runtime", `bounded=${script}`, "--default-runtime", "bounded"];
}

function missingCapabilities(): bigint {
  const bound = /^CapBnd:\s+(.*)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  const last = BigInt(readFileSync("/proc/sys/kernel/cap_last_cap", "utf8").trim());
  return ((1n << (last + 1n)) - 1n) & ~BigInt(`0x${bound}`);
}
