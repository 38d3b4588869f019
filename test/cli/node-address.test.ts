/** Valid addresses of remote daemons, and texts that ssh or a shell could take for an option or a command. */
import test from "ava";
import { UsageError } from "../../src/cli/output/failure.ts";
import { parseAddress } from "../../src/cli/nodes/address.ts";
import { sshArguments, type SshAddress } from "../../src/cli/nodes/ssh-stream.ts";

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
