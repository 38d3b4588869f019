import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, readdir, readFile, statfs } from "node:fs/promises";
import { promisify } from "node:util";
import { startEngine } from "./docker.ts";
import { dockerTest, needsDocker, sharedEngine } from "./docker-test.ts";
import { registryUser } from "./docker-registry.ts";
import { eventually } from "./eventually.ts";

const sharedOne = sharedEngine();

dockerTest(`images are built and run, and their ports published${needsDocker}`, async (t) => {
  const engine = sharedOne();
  await engine.images.build("svc/web:1", {
    cmd: ["/bin/httpd", "-f", "-p", "8080", "-h", "/www"],
    files: { "www/index.html": "hello" },
    labels: { "a b": 'c "d"' },
    ports: ["8080/tcp"],
  });
  const id = await engine.run("web", {
    Image: "svc/web:1",
    HostConfig: { PortBindings: { "8080/tcp": [{ HostIp: "127.0.0.1", HostPort: "0" }] } },
  });
  const { NetworkSettings, Config } = (await engine.request("GET", `/containers/${id}/json`)).expect(200) as {
    NetworkSettings: { Ports: Record<string, { HostPort: string }[]> };
    Config: { Labels: Record<string, string> };
  };
  t.is(Config.Labels["a b"], 'c "d"');
  const port = NetworkSettings.Ports["8080/tcp"]![0]!.HostPort;
  await eventually(async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    assert.equal(await answer.text(), "hello");
  });
});

dockerTest(
  `containers reach each other although the host's firewall drops forwarded packets${needsDocker}`,
  async (t) => {
    const engine = sharedOne();
    const dropped = ["FORWARD", "-s", engine.pool, "-d", engine.pool, "-j", "DROP"];
    await promisify(execFile)("iptables", ["--wait", "10", "--append", ...dropped]);
    await using stack = new AsyncDisposableStack();
    stack.defer(async () => {
      await promisify(execFile)("iptables", ["--wait", "10", "--delete", ...dropped]);
    });
    await engine.images.build("svc/pair:1", {
      cmd: ["/bin/httpd", "-f", "-p", "8080"],
    });
    (await engine.request("POST", "/networks/create", { Name: "pair" })).expect(201);
    const HostConfig = { NetworkMode: "pair" };
    const server = await engine.run("pair-server", { Image: "svc/pair:1", HostConfig });
    const { NetworkSettings } = (await engine.request("GET", `/containers/${server}/json`)).expect(200) as {
      NetworkSettings: { Networks: { pair: { IPAddress: string } } };
    };
    const reach = `echo | nc -w 3 ${NetworkSettings.Networks.pair.IPAddress} 8080`;
    const Cmd = ["/bin/sh", "-c", `${reach} || { sleep 1; ${reach}; }`];
    const id = await engine.run("pair-client", { Image: "svc/pair:1", Cmd, HostConfig });
    t.like((await engine.request("POST", `/containers/${id}/wait`)).expect(200), { StatusCode: 0 });
  },
);

for (const user of [undefined, registryUser]) {
  dockerTest(
    `images are pushed and pulled with a registry ${user ? "with a password" : "for all"}${needsDocker}`,
    async (t) => {
      const engine = sharedOne();
      const registry = await engine.registry(user);
      const tag = `${registry.host}/svc/app:1`;
      await engine.images.build(tag);
      if (user !== undefined) await t.throwsAsync(engine.images.push(tag), { message: /no basic auth/ });
      t.regex(await engine.images.push(tag, user), /^sha256:/);
    },
  );
}

dockerTest(
  `an engine whose data would exhaust memory stores them on the disk, and prints a message${needsDocker}`,
  async (t) => {
    const inMemory = 0x01021994;
    t.is((await statfs(sharedOne().data)).type, inMemory);
    await using engine = await startEngine({ availableBytes: 2 ** 30 });
    t.not((await statfs(engine.data)).type, inMemory);
    t.regex(engine.log(), /lie on the disk, as less than 4 GiB of memory are left/);
  },
);

dockerTest(`an engine hangs, stops and restarts, and leaves nothing${needsDocker}`, async (t) => {
  await using engine = await startEngine();
  await engine.images.build("svc/app:1");
  await engine.run("app", { Image: "svc/app:1" });
  (await engine.request("POST", "/networks/create", { Name: "more" })).expect(201);
  await engine.pause();
  const hung = await Promise.race([
    engine.request("GET", "/_ping").then(() => "answered"),
    new Promise((resolve) => setTimeout(resolve, 300, "hangs")),
  ]);
  t.is(hung, "hangs");
  engine.resume();
  (await engine.request("GET", "/_ping")).expect(200);
  await engine.restart();
  const { State } = (await engine.request("GET", "/containers/app/json")).expect(200) as {
    State: { Status: string };
  };
  t.is(State.Status, "exited");
  (await engine.request("POST", "/containers/app/start")).expect(204);
  await engine.kill();
  await t.throwsAsync(engine.request("GET", "/_ping"));
  await engine[Symbol.asyncDispose]();
  await t.throwsAsync(access(engine.dir));
  t.deepEqual(await processesThatName(engine.dir), []);
});

async function processesThatName(text: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (line.includes(text)) found.push(line);
  }
  return found;
}
