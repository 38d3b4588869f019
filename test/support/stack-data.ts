/** Marks in the data of all services of an app, to find them again after an upgrade, a restore or a clone. */
import assert from "node:assert/strict";
import type { TestEngine } from "./docker.ts";

interface ListedContainer {
  readonly Id: string;
  readonly Names: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
  readonly Mounts: readonly {
    readonly Type: string;
    readonly Name?: string;
    readonly Source: string;
    readonly Destination: string;
    readonly RW: boolean;
  }[];
}

/** Marks by service and directory; `kept` are those in named volumes and in directories of the package. */
export interface DataMarks {
  readonly all: Readonly<Record<string, string>>;
  readonly kept: Readonly<Record<string, string>>;
  /** Directories in volumes without a name. */
  readonly anonymous: readonly string[];
}

/** Names of containers without svc's digest: an app's ID may be the start of another one's. */
const containerName = (id: string): RegExp => new RegExp(`^/svc-${id}-[0-9a-f]{12}[-_]`);

const markMissing = 'test -e "$d/.mark" || cat /proc/sys/kernel/random/uuid > "$d/.mark"';

/** The marks of the app's running services; writes those that are missing. @param apps the directory of all apps */
export async function markData(engine: TestEngine, id: string, apps: string): Promise<DataMarks> {
  return readMarks(engine, id, apps, markMissing);
}

/** Replaces all marks, as services change their data. */
export async function changeData(engine: TestEngine, id: string, apps: string): Promise<void> {
  await readMarks(engine, id, apps, 'echo changed > "$d/.mark"');
}

async function readMarks(engine: TestEngine, id: string, apps: string, script: string): Promise<DataMarks> {
  const all: Record<string, string> = {};
  const anonymous: string[] = [];
  const listed = (await engine.request("GET", "/containers/json")).expect(200) as ListedContainer[];
  const own = listed.filter(({ Names }) => Names.some((name) => containerName(id).test(name)));
  assert.ok(own.length > 0, `${id} runs`);
  for (const { Id, Labels, Mounts } of own) {
    const service = Labels["com.docker.compose.service"] ?? "";
    const data = Mounts.filter(
      ({ Type, Source, RW }) => RW && (Type === "volume" || (Type === "bind" && Source.startsWith(apps))),
    );
    for (const { Name = "", Destination } of data) {
      if (/^[0-9a-f]{64}$/.test(Name)) anonymous.push(`${service} ${Destination}`);
    }
    const places = data.map(({ Destination }) => `'${Destination}'`).join(" ");
    const lines = await output(
      engine,
      Id,
      `for d in ${places}; do if test -d "$d" -a -w "$d"; then ${script}; echo "$d $(cat "$d/.mark")"; fi; done`,
    );
    for (const [, directory, mark = ""] of lines.matchAll(/^(\S+) ([\w-]+)\r?$/gm))
      all[`${service} ${directory}`] = mark;
  }
  assert.ok(Object.keys(all).length > 0, `services of ${id} have data`);
  const kept = Object.fromEntries(Object.entries(all).filter(([place]) => !anonymous.includes(place)));
  return { all, kept, anonymous };
}

/** What a shell in the container prints, as the container's user. */
async function output(engine: TestEngine, id: string, script: string): Promise<string> {
  const body = { Cmd: ["/bin/sh", "-c", script], AttachStdout: true, AttachStderr: true, Tty: true };
  const made = (await engine.request("POST", `/containers/${id}/exec`, body)).expect(201) as { Id: string };
  return (await engine.request("POST", `/exec/${made.Id}/start`, { Detach: false, Tty: true })).text;
}
