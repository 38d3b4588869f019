/** Git over ssh: whose keys, configuration and known hosts are used, and what is cached for whom. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { sshArguments } from "../../src/packages/git/ssh-connection.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { addVersion, freePort, writeRepository } from "../support/packages.ts";
import { needsSsh, startSshServer, type SshServer } from "../support/ssh-server.ts";

const test = needsSsh === "" ? anyTest : anyTest.skip;
const run = promisify(execFile);

interface Account {
  readonly name: string;
  readonly uid: number;
}
const root: Account = { name: "root", uid: 0 };
const ada: Account = { name: "ada", uid: 54_321 };
const bob: Account = { name: "bob", uid: 54_322 };

/** A host with the accounts, each with a directory for keys, and a git server that accepts root's key. */
class Host implements AsyncDisposable {
  readonly directory: string;
  readonly server: SshServer;
  readonly daemon: TestDaemon;
  readonly port: number;

  private constructor(directory: string, server: SshServer, daemon: TestDaemon, port: number) {
    this.directory = directory;
    this.server = server;
    this.daemon = daemon;
    this.port = port;
  }

  static async create({ config = "" } = {}): Promise<Host> {
    const directory = await mkdtemp(join(tmpdir(), "svc-git-ssh-"));
    await chmod(directory, 0o755);
    const accounts = [root, ada, bob];
    const lines = accounts.map(
      ({ name, uid }) => `${name}:x:${uid}:${uid}::${join(directory, "home", name)}:/bin/sh\n`,
    );
    const passwd = join(directory, "passwd");
    const others = (await readFile("/etc/passwd", "utf8")).replace(/^root:.*\n/m, "");
    await writeFile(passwd, lines.join("") + others, { mode: 0o644 });
    const server = await startSshServer();
    const port = await freePort();
    await writeRepository(join(directory, "git", "web"), port, [{ version: "1.0.0" }]);
    const script = `mount --bind '${passwd}' /etc/passwd && exec "$@"`;
    const daemon = await startDaemon({
      config,
      launcher: ["unshare", "--mount", "sh", "-c", script, "sh"],
      // A daemon's agent is nobody's.
      env: { SSH_AUTH_SOCK: "/nonexistent/agent" },
    });
    const host = new Host(directory, server, daemon, port);
    for (const account of accounts) await host.#addHome(account);
    await server.accept(host.homeFile(root, "id_ed25519.pub"));
    return host;
  }

  async #addHome(account: Account): Promise<void> {
    const { name, uid } = account;
    const [home, keys] = [join(this.directory, "home", name), this.homeFile(account)];
    await mkdir(keys, { recursive: true });
    await run("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", join(keys, "id_ed25519")]);
    await writeFile(join(keys, "known_hosts"), this.server.knownHost);
    for (const path of [home, keys, ...(await readdir(keys)).map((file) => join(keys, file))]) {
      await chown(path, uid, uid);
    }
    await chmod(keys, 0o700);
  }

  homeFile({ name }: Account, ...names: string[]): string {
    return join(this.directory, "home", name, ".ssh", ...names);
  }

  get spec(): string {
    return `ssh://root@127.0.0.1:${this.server.port}${join(this.directory, "git", "web", ".git")}`;
  }

  /** Lets the account read the repository with its own key. */
  accept(account: Account): Promise<void> {
    return this.server.accept(this.homeFile(account, "id_ed25519.pub"));
  }

  async configure(account: Account, text: string): Promise<void> {
    const file = this.homeFile(account, "config");
    await writeFile(file, text, { mode: 0o600 });
    await chown(file, account.uid, account.uid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    await rm(this.directory, { recursive: true, force: true });
  }
}

const denied = /accepts none of your ssh keys/;

test(`a user cannot install what only root's key can read${needsSsh}`, async (t) => {
  await using host = await Host.create();
  const app = await host.daemon.client(AppService).installApp({ spec: host.spec });
  t.is(app.version, "v1.0.0", "root installs it with root's key");
  await using user = await host.daemon.as(ada.uid);
  const error = await errorOf(user.client(AppService).installApp({ spec: host.spec }));
  t.is(error.reason, "git_failed");
  t.regex(error.message, denied);
});

test(`a user installs with the user's own key, and another user gets no cached copy${needsSsh}`, async (t) => {
  await using host = await Host.create();
  await host.accept(ada);
  await using user = await host.daemon.as(ada.uid);
  const app = await user.client(AppService).installApp({ spec: host.spec });
  t.like(app, { id: "web", version: "v1.0.0", owner: ada.uid });
  const { stdout } = await run("git", ["-C", join(host.directory, "git", "web"), "rev-parse", "HEAD"]);

  await using other = await host.daemon.as(bob.uid);
  for (const tag of ["", stdout.trim()]) {
    const error = await errorOf(other.client(AppService).installApp({ spec: host.spec, tag }));
    t.regex(error.message, denied, tag);
  }
});

test(`a large commit that is neither a branch nor a tag is fetched over ssh${needsSsh}`, async (t) => {
  await using host = await Host.create();
  const repository = join(host.directory, "git", "web");
  const git = (...args: string[]) => run("git", ["-C", repository, ...args]);
  const content = randomBytes(16 * 2 ** 20);
  await writeFile(join(repository, "large.bin"), content);
  await addVersion(repository, host.port, { version: "1.1.0" });
  const { stdout } = await git("rev-parse", "HEAD");
  await addVersion(repository, host.port, { version: "1.2.0" });
  await git("tag", "--delete", "v1.1.0");
  const app = await host.daemon.client(AppService).installApp({ spec: host.spec, tag: stdout.trim() });
  t.is(app.version, stdout.slice(0, 12));
  t.deepEqual(await readFile(join(app.directory, "repo", "large.bin")), content);
});

test(`the index of a source behind ssh is not shown to a user whose key cannot read it${needsSsh}`, async (t) => {
  await using host = await Host.create();
  const index = "packages:\n  secret-app: {repo: https://git.invalid/a/b}\n";
  await addVersion(join(host.directory, "git", "web"), host.port, {
    version: "1.0.1",
    files: { "index.yaml": index },
  });
  await host.daemon.client(SourceService).upsertSource({ name: "private", url: host.spec });
  const search = (connection: Pick<TestDaemon, "client">) =>
    connection.client(SourceService).searchPackages({ source: "private" });
  const { packages } = await search(host.daemon);
  t.deepEqual(
    packages.map(({ id }) => id),
    ["secret-app"],
  );
  await using user = await host.daemon.as(ada.uid);
  const { packages: shown, errors } = await search(user);
  t.deepEqual(shown, []);
  t.regex(errors[0]?.error ?? "", denied);
});

test(`programs of a user's ssh configuration run as the user, and end with the call${needsSsh}`, async (t) => {
  await using host = await Host.create();
  await host.accept(ada);
  const seen = join(host.directory, "home", "ada", "seen");
  const proxy = join(host.directory, "home", "ada", "proxy");
  await writeFile(
    proxy,
    `#!/bin/bash
    id -u >'${seen}'; pwd >>'${seen}'; env >>'${seen}'; for fd in /proc/$$/fd/*; do readlink $fd >>'${seen}'; done
    setsid sleep 4242 </dev/null >/dev/null 2>&1 & echo "child $!" >>'${seen}'
    exec 3<>"/dev/tcp/$1/$2"; cat <&3 & exec cat >&3
    `,
    { mode: 0o755 },
  );
  await host.configure(ada, `Host *\n  ProxyCommand ${proxy} %h %p\n`);
  await using user = await host.daemon.as(ada.uid);
  await user.client(AppService).installApp({ spec: host.spec });
  const report = await readFile(seen, "utf8");
  const [uid, directory] = report.split("\n");
  t.deepEqual([uid, directory], [String(ada.uid), "/"]);
  t.regex(report, new RegExp(`^HOME=${join(host.directory, "home", "ada")}$`, "m"));
  t.notRegex(report, /SSH_AUTH_SOCK|GIT_CONFIG/);
  t.notRegex(report, new RegExp(host.daemon.storeDir), "no descriptor leads to the daemon's files");
  const child = /^child (\d+)$/m.exec(report)?.[1] ?? "";
  await eventually(async () => {
    const status = await readFile(`/proc/${child}/status`, "utf8").catch(() => "State:\tgone");
    assert.match(status, /^State:\t(?:gone|Z)/m);
  });
  t.pass();
});

test(`a canceled install ends a user's ssh that does not respond${needsSsh}`, async (t) => {
  await using host = await Host.create();
  const seen = join(host.directory, "home", "ada", "pid");
  await host.configure(
    ada,
    `Host *\n  ProxyCommand sh -c 'trap "" TERM; echo $$ >${seen}; while :; do sleep 1; done'\n`,
  );
  await using user = await host.daemon.as(ada.uid);
  const stop = new AbortController();
  const call = errorOf(user.client(AppService).installApp({ spec: host.spec }, { signal: stop.signal }));
  let pid = "";
  await eventually(async () => {
    pid = (await readFile(seen, "utf8")).trim();
    assert.notEqual(pid, "");
  });
  t.regex(await readFile(`/proc/${pid}/status`, "utf8"), new RegExp(`^Uid:\\t${ada.uid}\\t`, "m"));
  stop.abort();
  t.is((await call).code, "Canceled");
  await eventually(async () => {
    await assert.rejects(readFile(`/proc/${pid}/status`), { code: "ENOENT" });
  }, 30_000);
});

test(`updates of a user's app are looked for with the user's key, whoever asks${needsSsh}`, async (t) => {
  await using host = await Host.create();
  await host.accept(ada);
  await using user = await host.daemon.as(ada.uid);
  await user.client(AppService).installApp({ spec: host.spec });
  await addVersion(join(host.directory, "git", "web"), host.port, { version: "1.1.0" });
  // From now on, root's key would not help.
  await host.configure(root, "Host *\n  IdentityFile /nonexistent\n  IdentitiesOnly yes\n");
  const apps = host.daemon.client(AppService);
  const { updates } = await apps.listUpdates({});
  t.like(updates[0], { id: "web", availableVersion: "v1.1.0", problem: undefined });
  await apps.upgradeApp({ id: "web", stopApp: true });
  t.is((await apps.getApp({ id: "web" })).version, "v1.1.0");
});

test(`an unknown host key is reported with the file to add it to${needsSsh}`, async (t) => {
  await using host = await Host.create();
  await host.accept(ada);
  await writeFile(host.homeFile(ada, "known_hosts"), "");
  await using user = await host.daemon.as(ada.uid);
  const error = await errorOf(user.client(AppService).installApp({ spec: host.spec }));
  t.regex(error.message, /^the host key of ssh:.* is unknown or has changed; .* ~\/\.ssh\/known_hosts$/);
});

test(`without ssh on the host, the error names it${needsSsh}`, async (t) => {
  await using host = await Host.create({ config: '[apps]\npath = ["/opt"]' });
  const error = await errorOf(host.daemon.client(AppService).installApp({ spec: host.spec }));
  t.like(error, { reason: "git_failed", message: "ssh is not installed on this host" });
});

/** What git passes to ssh. */
async function argumentsOfGit(t: ExecutionContext, url: string): Promise<string[]> {
  const env = { PATH: "/usr/bin:/bin", GIT_SSH_COMMAND: `printf '%s\\0' >&2`, GIT_SSH_VARIANT: "ssh" };
  const error = await t.throwsAsync<Error & { stderr: string }>(run("git", ["ls-remote", url], { env }));
  const words = error.stderr.split("\0").slice(0, -1);
  return words.filter((word, at) => !/^-o$/.test(word) && words[at - 1] !== "-o");
}

for (const url of [
  "git@git.example:me/a.git",
  "git.example:/srv/a.git",
  "git.example:~me/a.git",
  "git@[::1]:a.git",
  "[git@git.example:2222]:me/a.git",
  "ssh://git.example/srv/a.git",
  "ssh://git@git.example:2222/me/a%20b.git",
  "ssh://git@git.example/~me/a.git",
  "ssh://git@git.example/it%27s%21.git",
  "ssh://git@[::1]:2222/a.git",
]) {
  anyTest(`ssh gets the same host, port and command as from git itself: ${url}`, async (t) => {
    const own = sshArguments(url).filter((word, at, words) => ![word, words[at - 1]].includes("-o"));
    t.deepEqual(
      own.filter((word) => word !== "--"),
      await argumentsOfGit(t, url),
    );
  });
}

anyTest(
  "ssh forwards nothing to a server, and starts no local command, whatever the configuration sets",
  async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-ssh-config-"));
    t.teardown(() => rm(directory, { recursive: true }));
    const file = join(directory, "config");
    await writeFile(
      file,
      "Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  PermitLocalCommand yes\n  LocalForward 7777 127.0.0.1:7777\n",
    );
    const { stdout } = await run("ssh", ["-F", file, "-G", ...sshArguments("git@git.example:a.git")]);
    t.regex(stdout, /^forwardagent no$/m);
    t.regex(stdout, /^forwardx11 no$/m);
    t.regex(stdout, /^permitlocalcommand no$/m);
    t.regex(stdout, /^clearallforwardings yes$/m);
  },
);
