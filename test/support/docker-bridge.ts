/** A network bridge and address ranges that no other engine of this machine uses. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { BlockList } from "node:net";
import { promisify } from "node:util";

const run = promisify(execFile);
const slots = 200;

export interface TestBridge extends AsyncDisposable {
  /** Its interface, which also names the engine's cgroup. */
  readonly name: string;
  /** Where the engine takes the addresses of further networks from. */
  readonly pool: string;
}

/** Takes the first free bridge, or one whose test run died. @throws Error when all are taken. */
export async function reserveBridge(): Promise<TestBridge> {
  for (let slot = 0; slot < slots; slot++) {
    const name = `svct${slot}`;
    // The kernel refuses a second interface of that name: this is what settles who has it.
    const isMine = (await tryIp("link", "add", name, "type", "bridge")) || (await takeOver(name));
    if (!isMine) continue;
    await ip("link", "set", name, "alias", String(process.pid), "up");
    await ip("address", "add", `10.231.${slot}.1/24`, "dev", name);
    const pool = `10.${232 + Math.floor(slot / 16)}.${(slot % 16) * 16}.0/20`;
    return {
      name,
      pool,
      [Symbol.asyncDispose]: async () => {
        // Networks of an engine that was killed leave their bridges behind.
        for (const bridge of [...(await bridgesIn(pool)), name]) await tryIp("link", "delete", bridge);
      },
    };
  }
  throw new Error(`all ${slots} bridges for test engines are taken`);
}

async function bridgesIn(pool: string): Promise<string[]> {
  const [start = "", prefix] = pool.split("/");
  const range = new BlockList();
  range.addSubnet(start, Number(prefix));
  const { stdout } = await run("ip", ["-json", "address", "show", "type", "bridge"]);
  // Selected by type, the others are listed as empty objects.
  const links = JSON.parse(stdout) as { ifname?: string; addr_info?: { local: string }[] }[];
  return links.flatMap(({ ifname, addr_info }) =>
    ifname !== undefined && addr_info?.some(({ local }) => range.check(local)) ? [ifname] : [],
  );
}

async function takeOver(name: string): Promise<boolean> {
  const owner = (await readFile(`/sys/class/net/${name}/ifalias`, "utf8").catch(() => "")).trim();
  // Without an owner it is being set up by somebody else right now.
  if (owner === "" || isAlive(Number(owner))) return false;
  return (await tryIp("link", "delete", name)) && (await tryIp("link", "add", name, "type", "bridge"));
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function ip(...args: string[]): Promise<void> {
  await run("ip", args);
}

function tryIp(...args: string[]): Promise<boolean> {
  return ip(...args).then(
    () => true,
    () => false,
  );
}
