/** No command lets a terminal interpret the names and the output of apps, packages and containers. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import {
  create,
  fromJson,
  ScalarType,
  type DescField,
  type DescMessage,
  type Message,
} from "@bufbuild/protobuf";
import { ValueSchema, StructSchema } from "@bufbuild/protobuf/wkt";
import test from "ava";
import type { Command } from "commander";
import { services } from "../../gen/svc/v1/services.ts";
import { createProgram } from "../../src/cli/program.ts";
import { invalidField, SvcError } from "../../src/errors.ts";
import type { BoundService } from "../../src/server/rpc/bound-service.ts";
import { openGateway } from "../server/http/support/gateway.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { bindService } from "../support/bind-service.ts";

const evil = "x\x1b]0;t\x07\x9b2J\u202e\r\x08y";
/**
 * Characters that a terminal interprets: controls except line ends, after removing our own colors, redraws
 * and questions.
 */
const obeyed = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
const ours = /\x1b\[\d+m|\r(?:\x1b\[K|\n)/g;

const mostDepth = 6;
/** Fields that are not displayed text: another page would never end, and a token is printed for `$(…)`. */
const ownWords: Readonly<Record<string, string>> = { next_page_token: "", token: "svca_x" };

/** Messages with the hostile text in every field, one for each member of its oneofs. */
function hostileMessages(desc: DescMessage, depth = 0): Message[] {
  if (desc.typeName === ValueSchema.typeName) return [fromJson(ValueSchema, hostileJson)];
  if (desc.typeName === StructSchema.typeName) return [fromJson(StructSchema, hostileJson)];
  if (desc.typeName.startsWith("google.protobuf.")) return [create(desc, { seconds: 1_767_225_600n })];
  const plain: Record<string, unknown> = {};
  for (const field of desc.fields) {
    if (field.oneof === undefined) plain[field.localName] = hostileValue(field, depth);
  }
  const variants = desc.oneofs.flatMap((oneof) =>
    oneof.fields.map((field) => ({
      [oneof.localName]: { case: field.localName, value: hostileValue(field, depth) },
    })),
  );
  return (variants.length === 0 ? [{}] : variants).map((variant) => create(desc, { ...plain, ...variant }));
}

const hostileJson = {
  type: "object",
  [evil]: evil,
  properties: { [evil]: { type: evil, description: evil, default: evil } },
};

function hostileValue(field: DescField, depth: number): unknown {
  const message = (desc: DescMessage): unknown =>
    depth < mostDepth ? hostileMessages(desc, depth + 1)[0] : undefined;
  switch (field.fieldKind) {
    case "message":
      return message(field.message);
    case "enum":
      return 1;
    case "map":
      return { [evil]: field.mapKind === "message" ? message(field.message) : hostileScalar(field.scalar) };
    case "list":
      if (field.listKind === "message")
        return depth < mostDepth ? hostileMessages(field.message, depth + 1) : [];
      return [hostileScalar(field.listKind === "scalar" ? field.scalar : undefined)];
    case "scalar":
      return ownWords[field.name] ?? hostileScalar(field.scalar);
  }
}

function hostileScalar(scalar: ScalarType | undefined): unknown {
  switch (scalar) {
    case ScalarType.STRING:
      return evil;
    case ScalarType.BYTES:
      return Buffer.from(evil);
    case ScalarType.BOOL:
      return true;
    case ScalarType.INT64:
    case ScalarType.UINT64:
      return 1n;
    default:
      return 1;
  }
}

const refusals: Readonly<Record<string, () => SvcError>> = {
  "a message": () => new SvcError("internal", evil),
  "a field": () => invalidField(evil, evil),
  "last lines": () =>
    new SvcError("start_failed", evil, { payload: { exitCode: 1, signal: evil, lastLines: [evil] } }),
  candidates: () =>
    new SvcError("ambiguous", evil, {
      payload: { candidates: [{ spec: evil, source: evil, id: evil, name: evil, summary: evil }] },
    }),
  licenses: () =>
    new SvcError("license_required", evil, {
      payload: { licenses: [{ name: evil, text: evil, sha256: evil }], permissions: [evil] },
    }),
};

/** A daemon with the same response to every call. */
function servicesThat(answer: (output: DescMessage) => Message[]): BoundService[] {
  return services.map((service) => {
    const handlers = service.methods.map((method) => {
      const unary = (): Message | undefined => answer(method.output)[0];
      async function* stream(): AsyncGenerator<Message> {
        await Promise.resolve();
        yield* answer(method.output);
      }
      return [method.localName, /server_streaming|bidi_streaming/.test(method.methodKind) ? stream : unary];
    });
    return bindService(service, Object.fromEntries(handlers) as never);
  });
}

/** Every command, with its required arguments. */
const lines: readonly string[] = [
  "ls",
  "ls --all-nodes",
  "status",
  "search x",
  "outdated",
  "source show x",
  "install x",
  "install x --start --accept-license --accept-permissions",
  "upgrade x",
  "upgrade --all",
  "upgrade --all --restart",
  "app start x",
  "app start x --no-wait",
  "app stop x",
  "app cancel x",
  "app place x --on swarm --replicas 2",
  "app scale x 2",
  "app export x --to kubernetes",
  "app restart x",
  "app logs x",
  "app logs x -t",
  "app logs x -f",
  "app info x",
  "start x",
  "stop x",
  "restart x",
  "logs x",
  "logs x y",
  "logs x y -f",
  "logs x --grep . --until 1s",
  "info x y",
  "info x --format {{.name}}{{.ports}}",
  "info x -o yaml",
  "status x",
  "open x",
  "version",
  "ls -q",
  "ls -o wide",
  "ls --format {{.name}}",
  "app remove x --dry-run",
  "upgrade x --dry-run",
  "install x --dry-run",
  "backup create x --dry-run",
  "app image x --check",
  "app repull x",
  "app settings get x",
  "app settings set x a=b",
  "app settings set x --set-file a=SECRET",
  "app settings unset x a",
  "app clone x --share-volumes",
  "app rename x y",
  "app copy x --to far",
  "app move x --to far",
  "app remove x",
  "disk",
  "disk x",
  "ports",
  "ports x",
  "stats",
  "stats x",
  "stats -w",
  "stacks",
  "docker ps -a -s",
  "docker stats",
  "docker start x",
  "docker stop -p x",
  "docker restart x",
  "docker pause x",
  "docker unpause x",
  "docker rm x",
  "docker inspect x",
  "docker logs x",
  "docker logs x -f -t",
  "docker events",
  "events",
  "events --follow",
  "docker images",
  "docker volumes",
  "docker networks",
  "docker df",
  "adopt",
  "adopt web --dry-run",
  "adopt web",
  "docker prune images -n",
  "backup create x",
  "backup ls",
  "backup show x y --storage local",
  "backup rm x y --storage local",
  "backup verify x y --storage local",
  "backup browse x y --storage local",
  "backup get x y data/z --storage local",
  "backup download x y --storage local",
  "backup restore x y --storage local",
  "backup upload /dev/null",
  "backup policy x",
  "backup policy x set --trigger hourly",
  "backup storage ls",
  "backup storage add z --dir /srv/z",
  "backup storage edit x --max-rate 65536",
  "backup storage test z",
  "backup storage rm z",
  "file ls /x",
  "file stat /x",
  "file cat /x",
  "file get /x GOTTEN",
  "file put SECRET /x",
  "file mkdir /x",
  "file mv /x /y",
  "file cp /x /y",
  "file rm /x",
  "file chmod 0644 /x",
  "file chown x /x",
  "file tar /x.zip /y",
  "file untar /x.zip /y",
  "file du /x",
  "file find /x *",
  "file grep x /y",
  "file tail /x",
  "host",
  "host -w",
  "top",
  "top -a",
  "listening",
  "kill 5",
  "reboot",
  "schedule list",
  "schedule add hourly app_start --app x --id y",
  "schedule show x",
  "schedule edit x --comment y",
  "schedule edit x --keep-children",
  "schedule remove x",
  "schedule enable x",
  "schedule disable x",
  "schedule run x",
  "schedule run x -d",
  "schedule cancel x",
  "schedule runs x",
  "schedule runs x -o 1",
  "schedule next hourly",
  "schedule import CRONTAB",
  "source list",
  "source add x https://example.org/x.git",
  "source remove x",
  "credential list",
  "credential add x example.org -u y --secret-file SECRET",
  "credential remove x",
  "token status",
  "token issue",
  "token revoke",
  "token rotate",
  "token commit",
  "web",
  "web --end",
  "daemon reload",
  "operations ls",
  "operations logs x",
  "operations logs x -f",
  "operations wait x",
  "operations cancel x",
  "audit",
  "audit --verify",
  "api AppService.ListApps",
];
/** Commands that do not call a daemon. */
const alone = [
  ...["completion", "doctor", "setup", "node add", "node list", "node use", "node remove"],
  ...["package init", "package check", "package run", "package schema", "source check"],
];
/** Commands that pass terminal output through unchanged, as the user asked for. */
const terminals = ["app attach", "app shell", "app exec", "dial-stdio"];

function leaves(command: Command, path: readonly string[] = []): string[] {
  if (command.commands.length === 0) return [path.join(" ")];
  return command.commands.flatMap((child) => leaves(child, [...path, child.name()]));
}

test("every command is tested", async (t) => {
  const host = { args: [], version: "", stdout: process.stdout, stderr: process.stderr };
  const program = await createProgram(
    host as never,
    () => () => Promise.resolve(),
    () => Promise.resolve(),
  );
  // Commands of `svc app` are the same as those of `svc`.
  const shorten = (line: string): string => line.replace(/^(app|backup(?= restore)) /, "");
  const known = [...alone, ...terminals, ...lines].map(shorten);
  const missing = leaves(program)
    .map(shorten)
    .filter((leaf) => !known.some((line) => `${line} `.startsWith(`${leaf} `)));
  t.deepEqual(missing, []);
});

const daemons: Readonly<Record<string, (output: DescMessage) => Message[]>> = {
  "sends in responses": (output) => hostileMessages(output),
  ...Object.fromEntries(
    Object.entries(refusals).map(([name, refusal]) => [
      `sends in an error with ${name}`,
      (): never => {
        throw refusal();
      },
    ]),
  ),
};

for (const [name, answer] of Object.entries(daemons)) {
  for (const { form, flags = [], id = "x" } of [
    { form: "for people" },
    { form: "for programs", flags: ["--json"] },
    // Some commands have their own option -o, so these are options of svc itself.
    { form: "as YAML", flags: ["-o", "yaml"] },
    { form: "with all columns", flags: ["-o", "wide"] },
    { form: "by name", flags: ["-o", "name"] },
    { form: "by a template", flags: ["--format", "{{.id}} {{.name}}"] },
    // The ID may come from a file.
    { form: "for a hostile ID on the command line", id: evil },
  ]) {
    test(`a terminal interprets nothing of what a hostile daemon ${name}, ${form}`, async (t) => {
      await using daemon = await openGateway({ services: servicesThat(answer) });
      await writeFile(join(daemon.directory, "CRONTAB"), "0 3 * * * date\n");
      await writeFile(join(daemon.directory, "SECRET"), "secret\n", { mode: 0o600 });
      const config = join(daemon.directory, ".config/svc");
      await mkdir(config, { recursive: true });
      const nodes = { nodes: { far: { address: `unix://${daemon.socketPath}` } } };
      await writeFile(join(config, "nodes.json"), JSON.stringify(nodes), { mode: 0o600 });
      for (const line of lines) {
        const words = line
          .split(" ")
          .map((word) => (/^[A-Z]+$/.test(word) ? join(daemon.directory, word) : word))
          .map((word) => (word === "x" ? id : word));
        const options = ["--socket", daemon.socketPath, "-y"];
        // A user at a terminal who answers no question.
        const stdin = Object.assign(new PassThrough().end(), { isTTY: true });
        const { stdout, stderr } = await runSvc([...flags, ...words, ...options], {
          terminal: true,
          host: { stdin, home: daemon.directory },
        });
        const screen = (stdout + stderr).replace(ours, "");
        t.notRegex(screen, obeyed, `${line}: ${JSON.stringify(obeyed.exec(screen))}`);
        // The client may reject an invalid ID, or an option that a command lacks, without a call.
        if (id === "x" && (flags.length === 0 || flags[0] === "--json"))
          t.true(daemon.counts.splice(0).length > 0, `${line} asks the daemon: ${stderr}`);
      }
    });
  }
}
