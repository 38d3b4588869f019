/** `svc node …`, and the choice of a command's daemon. */
import { execFile } from "node:child_process";
import { chmod, chown, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { parseAddress } from "../../src/cli/nodes/address.ts";
import { sshArguments, type SshAddress } from "../../src/cli/nodes/ssh-stream.ts";
import { UsageError } from "../../src/cli/output/failure.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { type SvcRun, runSvc } from "./support/run-svc.ts";

const rootTest = isRoot ? test : test.skip;

interface Home extends AsyncDisposable {
  readonly dir: string;
  readonly file: string;
  run(line: string, env?: Readonly<Record<string, string>>): Promise<SvcRun>;
}

async function makeHome(): Promise<Home> {
  const dir = await mkdtemp(join(tmpdir(), "svc-node-"));
  const uid = process.getuid?.() ?? 0;
  return {
    dir,
    file: join(dir, ".config/svc/nodes.json"),
    run: (line, env = {}) => runSvc(line.split(" "), { host: { home: dir, uid, env } }),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true }),
  };
}

test("nodes can be added, used and removed", async (t) => {
  await using home = await makeHome();
  await using attic = await startFakeDaemon([appOf({ id: "old" })]);
  await using shop = await startFakeDaemon([appOf({ id: "till" })]);
  t.is((await home.run(`node add attic unix://${attic.socketPath}`)).exitCode, 0);
  t.is((await home.run(`node add shop unix://${shop.socketPath}`)).exitCode, 0);
  t.is((await stat(home.file)).mode & 0o777, 0o600);
  t.is((await stat(dirname(home.file))).mode & 0o777, 0o700);
  t.regex((await home.run("-N attic ls")).stdout, /^old /m);
  t.regex((await home.run("ls --node shop")).stdout, /^till /m);
  t.regex((await home.run("ls", { SVC_NODE: "shop" })).stdout, /^till /m);
  t.regex((await home.run("ls", { SVC_HOST: `unix://${attic.socketPath}` })).stdout, /^old /m);
  t.regex((await home.run("node use shop")).stdout, /The default node is now shop/);
  t.regex((await home.run("ls")).stdout, /^till /m);
  t.regex((await home.run("ls -N attic", { SVC_NODE: "shop" })).stdout, /^old /m);
  t.regex((await home.run(`ls --socket ${attic.socketPath}`)).stdout, /^old /m);
  const table = (await home.run("node list")).stdout;
  t.regex(table, /^ +local +this machine\n +attic +unix:.*\n\* +shop /m);
  t.regex((await home.run("node remove shop")).stderr, /The default node is this machine again/);
  const { stderr, exitCode } = await home.run("-N shop ls");
  t.is(exitCode, 3);
  t.regex(stderr, /no node "shop"; list them with: svc node list/);
});

test("the question before a removal names the node", async (t) => {
  await using home = await makeHome();
  await using attic = await startFakeDaemon([appOf({ id: "old" })]);
  await home.run(`node add attic unix://${attic.socketPath}`);
  const asked = /^svc: on attic: this deletes old with all data; pass --yes to confirm\n$/;
  t.regex((await home.run("-N attic rm old")).stderr, asked);
  await home.run("node use attic");
  t.regex((await home.run("rm old")).stderr, asked);
});

test("all nodes are queried in parallel, and those that do not respond are reported", async (t) => {
  await using home = await makeHome();
  await using here = await startFakeDaemon([appOf({ id: "near" })]);
  await using attic = await startFakeDaemon([appOf({ id: "old" }), appOf({ id: "older", state: "RUNNING" })]);
  const mute = createServer().listen(join(home.dir, "mute.sock"));
  const held: Socket[] = [];
  mute.on("connection", (socket) => held.push(socket));
  t.teardown(() => {
    for (const socket of held) socket.destroy();
    mute.close();
  });
  await home.run(`node add attic unix://${attic.socketPath}`);
  await home.run(`node add mute unix://${join(home.dir, "mute.sock")}`);
  await home.run(`node add gone unix://${join(home.dir, "gone.sock")}`);
  await home.run("node add silent ssh://silent");
  // An ssh that never connects.
  const ssh = join(home.dir, "ssh");
  await writeFile(ssh, "#!/bin/sh\nexec sleep 600\n", { mode: 0o755 });
  const env = { SVC_SSH: ssh };
  const before = performance.now();
  const run = await home.run(`ls --all-nodes --timeout 2 --socket ${here.socketPath}`, env);
  t.true(performance.now() - before < 30_000);
  t.regex(run.stdout, /^NODE +ID .*\nlocal +near .*\nattic +old .*\nattic +older /m);
  t.regex(run.stderr, /^svc: mute did not respond: /m);
  t.regex(run.stderr, /^svc: gone did not respond: there is no socket /m);
  t.regex(run.stderr, /^svc: silent did not respond: /m);
  t.not(run.exitCode, 0);
  const some = await home.run(`ls --all-nodes --state running --timeout 2 --socket ${here.socketPath}`, env);
  t.regex(some.stdout, /^NODE +ID .*\nattic +older .*\n$/);
  const none = await home.run(`ls --all-nodes --owner bob --timeout 2 --socket ${here.socketPath}`, env);
  t.is(none.stdout, "");
  t.regex(none.stderr, /No installed app matches/);
  const json = await home.run(`ls --all-nodes --json --timeout 2 --socket ${here.socketPath}`, env);
  const { nodes } = JSON.parse(json.stdout) as { nodes: { node: string; apps?: object[]; code?: string }[] };
  t.deepEqual(
    nodes.map(({ node, apps, code }) => [node, apps?.length ?? code]),
    [
      ["local", 1],
      ["attic", 2],
      ["mute", "deadline_exceeded"],
      ["gone", "unavailable"],
      ["silent", "deadline_exceeded"],
    ],
  );
});

test("svc open and svc web name the tunnel to what listens only on the remote machine itself", async (t) => {
  await using home = await makeHome();
  await using attic = await startDaemon();
  const [spec, port] = [join(attic.dir, "web"), await freePort()];
  await writePackage(spec, port);
  const apps = attic.client(AppService);
  await apps.installApp({ spec });
  await apps.startApp({ id: "web" });
  const ssh = join(home.dir, "ssh");
  const dial = `"${process.execPath}" "${main}" dial-stdio --socket "${attic.socketPath}"`;
  await writeFile(ssh, `#!/bin/sh\nexec ${dial}\n`, { mode: 0o755 });
  await home.run("node add attic ssh://ada@attic.lan:2222");
  const app = await home.run("-N attic open web", { SVC_SSH: ssh });
  t.is(app.stdout, `http://127.0.0.1:${port}\n`, app.stderr);
  t.is(
    app.stderr,
    `web listens only on attic itself. First: ssh -p 2222 -L ${port}:127.0.0.1:${port} ada@attic.lan\n`,
  );
  const page = await home.run("-N attic web", { SVC_SSH: ssh });
  t.regex(
    page.stderr,
    /^The page listens only on attic itself. First: ssh -p 2222 -L (\d+):127.0.0.1:\1 ada@/,
  );
  await apps.removeApp({ id: "web" });
});

test("an unknown host key names the command that shows and accepts it", async (t) => {
  await using home = await makeHome();
  const ssh = join(home.dir, "ssh");
  await writeFile(ssh, "#!/bin/sh\necho Host key verification failed. >&2\nexit 255\n", { mode: 0o755 });
  const run = await home.run("-H ssh://ada@attic:2222 ls", { SVC_SSH: ssh });
  t.is(run.exitCode, 6);
  t.is(
    run.stderr,
    "svc: ssh cannot reach attic: Host key verification failed; check and accept its key once with: ssh -p 2222 ada@attic\n",
  );
});

test("nodes whose ssh fails are reported, and the others are shown", async (t) => {
  await using home = await makeHome();
  await using here = await startFakeDaemon([appOf({ id: "near" })]);
  await home.run("node add gone ssh://gone");
  await home.run("node add lost ssh://lost");
  const ssh = join(home.dir, "ssh");
  await writeFile(ssh, "#!/bin/sh\necho refused >&2\nexit 255\n", { mode: 0o755 });
  const run = await home.run(`ls --all-nodes --socket ${here.socketPath}`, { SVC_SSH: ssh });
  t.regex(run.stdout, /^local +near /m);
  for (const name of ["gone", "lost"]) {
    t.regex(run.stderr, new RegExp(`^svc: ${name} did not respond: ssh cannot reach ${name}: refused$`, "m"));
  }
  t.is(run.exitCode, 6);
});

test("the daemon of --host is queried once, along with all nodes", async (t) => {
  await using home = await makeHome();
  await using attic = await startFakeDaemon([appOf({ id: "old" })]);
  await using far = await startFakeDaemon([appOf({ id: "remote" })]);
  const [known, unknown] = [`unix://${attic.socketPath}`, `unix://${far.socketPath}`];
  await home.run(`node add attic ${known}`);
  const asked = async (line: string, env = {}): Promise<[string, string | undefined][]> => {
    const run = await home.run(`ls --all-nodes --json ${line}`.trim(), env);
    const { nodes } = JSON.parse(run.stdout) as { nodes: { node: string; apps?: { id: string }[] }[] };
    // This host may or may not have a daemon.
    return nodes.flatMap(({ node, apps }) => (node === "local" ? [] : [[node, apps?.[0]?.id]]));
  };
  const both = [
    ["attic", "old"],
    [unknown, "remote"],
  ] as [string, string][];
  t.deepEqual(await asked(`-H ${unknown}`), both);
  t.deepEqual(await asked("", { SVC_HOST: unknown }), both);
  for (const line of ["", `-H ${known}`, "-N attic"]) t.deepEqual(await asked(line), both.slice(0, 1), line);
});

test("no node waits for the response of another", async (t) => {
  await using home = await makeHome();
  const names = ["one", "two", "three"];
  const answers: (() => void)[] = [];
  for (const name of names) {
    const path = join(home.dir, `${name}.sock`);
    const server = createHttpServer((_request, response) => {
      response.setHeader("content-type", "application/json");
      answers.push(() => response.end(JSON.stringify({ apps: [{ id: `of-${name}`, state: "STOPPED" }] })));
      if (answers.length >= names.length) for (const answer of answers.splice(0)) answer();
    }).listen(path);
    t.teardown(() => {
      server.close();
      server.closeAllConnections();
    });
    await home.run(`node add ${name} unix://${path}`);
  }
  const run = await home.run(`ls --all-nodes --json --timeout 20 --socket ${join(home.dir, "none.sock")}`);
  const { nodes } = JSON.parse(run.stdout) as { nodes: { node: string; apps?: { id: string }[] }[] };
  const [, ...others] = nodes.map(({ node, apps }) => [node, apps?.[0]?.id]);
  t.deepEqual(
    others,
    names.map((name) => [name, `of-${name}`]),
  );
});

test("the timeout of a node includes all its pages", async (t) => {
  t.timeout(90_000);
  await using home = await makeHome();
  const path = join(home.dir, "endless.sock");
  let pages = 0;
  const endless = createHttpServer((_request, response) => {
    // Each page is in time, but none is the last.
    setTimeout(() => {
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ apps: [], next_page_token: String((pages += 1)) }));
    }, 200);
  }).listen(path);
  t.teardown(() => {
    endless.close();
    endless.closeAllConnections();
  });
  await home.run(`node add endless unix://${path}`);
  const before = performance.now();
  const run = await home.run(`ls --all-nodes --timeout 2 --socket ${join(home.dir, "none.sock")}`);
  t.true(performance.now() - before < 60_000);
  t.true(pages > 1, `${pages} pages: ${run.stderr}`);
  t.regex(run.stderr, /^svc: endless did not respond: not within 2 s/m);
});

test("names of nodes are completed, and names from the chosen node", async (t) => {
  await using home = await makeHome();
  await using attic = await startFakeDaemon([appOf({ id: "old" })]);
  await home.run(`node add attic unix://${attic.socketPath}`);
  const words = async (line: string): Promise<string[]> =>
    (await home.run(`__complete ${line}`)).stdout.split("\n").flatMap((each) => each.split("\t")[0] || []);
  t.deepEqual(await words("ls -N a"), ["attic"]);
  t.deepEqual(await words("node use "), ["local", "attic"]);
  t.deepEqual(await words("-N attic app start "), ["old"]);
  t.deepEqual(await words("-N nobody app start "), []);
});

for (const { title, line, env, says } of [
  {
    title: "two daemons at once",
    line: "ls -N a -H ssh://b",
    says: /--socket, --host and --node each select a daemon/,
  },
  { title: "a socket and a node", line: "ls -N a --socket /x", says: /each select a daemon/ },
  {
    title: "an address that is an option",
    line: "ls -H ssh://-oProxyCommand=x",
    says: /the host "-oProxyCommand=x"/,
  },
  { title: "one in the environment", line: "ls", env: { SVC_HOST: "ssh://-x" }, says: /the host "-x"/ },
  {
    title: "a node's own name for this machine",
    line: "node add local ssh://b",
    says: /local is this machine/,
  },
  { title: "a name that is a path", line: "node add ../x ssh://b", says: /the name "\.\.\/x" must be/ },
  {
    title: "https without a token",
    line: "node add a https://b",
    says: /pass --token-file or --credential-helper/,
  },
  { title: "ssh with a token", line: "node add a ssh://b --token-file x", says: /are for https addresses/ },
  {
    title: "an invalid ssh option",
    line: "node add a ssh://b --ssh-option -oX=y",
    says: /must be NAME=VALUE/,
  },
]) {
  test(`${title} is rejected`, async (t) => {
    await using home = await makeHome();
    const run = await home.run(line, env);
    t.is(run.exitCode, 2, run.stderr);
    t.regex(run.stderr, says);
  });
}

for (const { title, mode, text = "", says } of [
  { title: "that others may write", mode: 0o622, says: /can be changed by other users/ },
  {
    title: "that is damaged",
    mode: 0o600,
    text: "{",
    says: /is damaged; remove it, and add the nodes again/,
  },
]) {
  test(`a file of nodes ${title} is rejected`, async (t) => {
    await using home = await makeHome();
    await home.run("node add a ssh://b");
    if (text !== "") await writeFile(home.file, text);
    await chmod(home.file, mode);
    const run = await home.run("-N a ls");
    t.is(run.exitCode, 5, run.stderr);
    t.regex(run.stderr, says);
  });
}

rootTest(`a file of nodes that belongs to another user is rejected${needsRoot}`, async (t) => {
  await using home = await makeHome();
  await home.run("node add a ssh://b");
  await chown(home.file, 65_534, 65_534);
  const run = await home.run("-N a ls");
  t.is(run.exitCode, 5, run.stderr);
  t.regex(run.stderr, /can be changed by other users/);
});

const secret = "svc_canary_0123456789";

rootTest(`an inaccessible home directory counts as having no nodes${needsRoot}`, async (t) => {
  await using home = await makeHome();
  await mkdir(join(home.dir, ".config/svc"), { recursive: true, mode: 0o700 });
  await writeFile(home.file, "{", { mode: 0o600 });
  const module = new URL("../../src/cli/nodes/node-file.ts", import.meta.url).href;
  const host = JSON.stringify({ env: {}, home: home.dir, uid: 65_534 });
  const script = `console.log(JSON.stringify((await import("${module}")).readNodes(${host})));`;
  const args = ["--input-type=module", "--eval", script];
  const { stdout } = await promisify(execFile)(process.execPath, args, {
    uid: 65_534,
    gid: 65_534,
    cwd: "/",
  });
  t.deepEqual(JSON.parse(stdout), { nodes: {} });
});

test("a token comes from a private file or a helper, and is never printed", async (t) => {
  await using home = await makeHome();
  const file = join(home.dir, "token");
  await writeFile(file, `${secret}\n`, { mode: 0o644 });
  await mkdir(join(home.dir, "bin"));
  const helper = join(home.dir, "bin/helper");
  await writeFile(
    helper,
    `#!/bin/sh\nread -r address; echo "{\\"Secret\\": \\"${secret} $1\\"}"; echo ${secret} >&2\n`,
    {
      mode: 0o755,
    },
  );
  await home.run(`node add loose http://127.0.0.1:1 --token-file ${file}`);
  await home.run(`node add helped http://127.0.0.1:1 --credential-helper ${helper}`);
  await home.run("node add lost http://127.0.0.1:1 --credential-helper /nonexistent/helper");
  const loose = await home.run("-N loose ls");
  t.regex(loose.stderr, /token file .* cannot be used: other users can read it: chmod 600/);
  const helped = await home.run("-N helped ls");
  t.regex(helped.stderr, /helper for http:\/\/127\.0\.0\.1:1 is not a token/);
  t.regex((await home.run("-N lost ls")).stderr, /the program was not found/);
  await writeFile(helper, `#!/bin/sh\necho ${secret}; echo ${secret} >&2; exit 1\n`);
  const failing = await home.run("-N helped ls");
  t.regex(failing.stderr, /helper has no token for http:\/\/127\.0\.0\.1:1: the program failed/);
  await chmod(file, 0o600);
  const nobody = await home.run("-N loose ls");
  t.is(nobody.exitCode, 6);
  t.regex(nobody.stderr, /nothing listens on 127\.0\.0\.1:1/);
  const said = [loose, helped, failing, nobody, await home.run("node list --json")];
  t.false(said.some(({ stdout, stderr }) => (stdout + stderr).includes(secret)));
  t.false((await readFile(home.file, "utf8")).includes(secret));
});

// Valid addresses of remote daemons, and texts that ssh or a shell could take for an option or a command.

const bare = { user: undefined, port: undefined, socketPath: undefined };
const good: Readonly<Record<string, object>> = {
  "ssh://attic": { kind: "ssh", host: "attic", ...bare },
  "ssh://ada@attic.example.org:2222": {
    kind: "ssh",
    ...bare,
    user: "ada",
    host: "attic.example.org",
    port: 2222,
  },
  "ssh://[::1]:22": { kind: "ssh", ...bare, host: "::1", port: 22 },
  "ssh://attic/run/svc/other.sock": {
    kind: "ssh",
    ...bare,
    host: "attic",
    socketPath: "/run/svc/other.sock",
  },
  "ssh://attic/": { kind: "ssh", host: "attic", ...bare },
  "https://svc.example.org": {
    kind: "https",
    host: "svc.example.org",
    port: 443,
    authority: "svc.example.org",
  },
  "https://[2001:db8::1]:8443/": {
    kind: "https",
    host: "2001:db8::1",
    port: 8443,
    authority: "[2001:db8::1]:8443",
  },
  "http://127.0.0.1:8420": { kind: "http", host: "127.0.0.1", port: 8420, authority: "127.0.0.1:8420" },
  "unix:///run/svc/svc.sock": { kind: "unix", socketPath: "/run/svc/svc.sock" },
};

for (const [address, parts] of Object.entries(good)) {
  test(`${address} is a valid address`, (t) => {
    t.deepEqual(parseAddress(address) as object, parts);
  });
}

const bad = [
  "",
  "attic",
  "ftp://attic",
  "ssh://",
  "ssh://-oProxyCommand=touch${IFS}x",
  "ssh://-oProxyCommand=x/run/svc.sock",
  "ssh://-l@attic",
  "ssh://--@attic",
  "ssh://ada@-attic",
  "ssh://attic;id",
  "ssh://$(id)",
  "ssh://`id`",
  "ssh://at tic",
  "ssh://attic\nHost evil",
  "ssh://attic%2dx",
  "ssh://a'b@attic",
  "ssh://attic:0",
  "ssh://attic:65536",
  "ssh://attic:22x",
  "ssh://attic:-p",
  "ssh://[::1",
  "ssh://[-oX]",
  "ssh://attic/run/x'; id; '",
  "ssh://attic/run/$(id)",
  "ssh://attic/run/a b",
  `ssh://attic/${"x".repeat(200)}`,
  "https://ada@svc.example.org",
  "https://svc.example.org/v1",
  "http://svc.example.org",
  "http://127.0.0.1.example.org",
  "unix://host/run/svc.sock",
  "unix://",
];

for (const address of bad) {
  test(`${JSON.stringify(address.slice(0, 60))} is not a valid address`, (t) => {
    t.throws(() => parseAddress(address), { instanceOf: UsageError });
  });
}

test("a machine without a scheme gets its ssh address as a suggestion", (t) => {
  for (const text of ["ada@attic", "10.77.0.1"]) {
    const error = t.throws(() => parseAddress(text), { instanceOf: UsageError });
    t.true(error.message.startsWith(`"${text}" is not an address of a daemon; did you mean ssh://${text}? `));
  }
  t.throws(() => parseAddress("ada:hunter2@attic"), { message: /^this is not an address/ });
});

test("a password in an address is rejected and not printed", (t) => {
  for (const kind of ["ssh", "https"]) {
    const error = t.throws(() => parseAddress(`${kind}://ada:hunter2@attic`), { instanceOf: UsageError });
    t.notRegex(error.message, /hunter2/);
  }
});

test("ssh takes no argument after -- for an option", (t) => {
  const address = parseAddress("ssh://ada@attic:2222/run/other.sock") as SshAddress;
  const args = sshArguments(address, ["IdentityFile=~/x"]);
  const end = args.indexOf("--");
  t.deepEqual(args.slice(end + 1), ["attic", "svc --socket '/run/other.sock' dial-stdio"]);
  t.deepEqual(args.slice(0, end), [
    "-T",
    "-o",
    "IdentityFile=~/x",
    "-o",
    "ConnectTimeout=30",
    "-l",
    "ada",
    "-p",
    "2222",
  ]);
});
