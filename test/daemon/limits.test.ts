/** The limits of listeners and of users are settings. */
import { connect } from "node:net";
import test from "ava";
import { parseConfig } from "../../src/daemon/config.ts";
import { userLimits } from "../../src/daemon/user-limits.ts";
import { SvcError } from "../../src/errors.ts";
import { defaultsOf } from "../../src/lib/limit-table.ts";
import { defaultTransportLimits, transportLimits } from "../../src/server/http/limits.ts";
import { startDaemon } from "../support/daemon.ts";
import { nextEvent } from "../support/eventually.ts";

const environment = { uid: 0, home: "/root", env: {} };

function limitsOf(limits: Record<string, unknown>): unknown {
  return parseConfig({ api: { limits } }, "/etc/svc/svc.toml", environment).api.limits;
}

test("without settings the limits are the defaults, each within its own range", (t) => {
  t.deepEqual(limitsOf({}), defaultTransportLimits);
  for (const [name, { default: value, min, max }] of Object.entries(transportLimits))
    t.true(value >= min && value <= max, name);
});

test("without settings users have the default limits, each within its own range; a setting replaces its own", (t) => {
  const read = (limits: Record<string, unknown>): unknown =>
    parseConfig({ limits }, "/etc/svc/svc.toml", environment).limits;
  const defaultUserLimits = defaultsOf(userLimits);
  t.deepEqual(read({}), defaultUserLimits);
  for (const [name, { default: value, min, max }] of Object.entries(userLimits))
    t.true(value >= min && value <= max, name);
  t.deepEqual(read({ max_backup_bytes_per_user: 0 }), { ...defaultUserLimits, maxBackupBytesPerUser: 0 });
  t.deepEqual(read({ max_installs: 9 }), { ...defaultUserLimits, maxInstalls: 9 });
  t.throws(() => read({ max_installs: 0 }), {
    message: /limits\.max_installs: 0 must be a whole number from 1/,
  });
});

test("a setting replaces its own limit", (t) => {
  t.deepEqual(limitsOf({ max_connections: 7, headers_timeout_ms: 900 }), {
    ...defaultTransportLimits,
    maxConnections: 7,
    headersTimeoutMs: 900,
  });
});

for (const [key, value, expected] of [
  ["max_connection", 7, "api.limits.max_connection is not a setting of svc"],
  ["maxConnections", 7, "api.limits.maxConnections is not a setting of svc"],
  ["max_connections", 0, "api.limits.max_connections: 0 must be a whole number from 1 to 1000000"],
  ["max_connections", "7", 'api.limits.max_connections: "7" must be a whole number from 1 to 1000000'],
  [
    "headers_timeout_ms",
    0.5,
    "api.limits.headers_timeout_ms: 0.5 must be a whole number from 100 to 86400000",
  ],
  [
    "max_message_bytes",
    2 ** 25,
    "api.limits.max_message_bytes: 33554432 must be a whole number from 1024 to 16777216",
  ],
] as const) {
  test(`${key} = ${JSON.stringify(value)} is rejected`, (t) => {
    const error = t.throws(() => limitsOf({ [key]: value }), { instanceOf: SvcError });
    t.is(error.message, `/etc/svc/svc.toml: ${expected}`);
  });
}

test("the daemon applies the limits of its file", async (t) => {
  await using daemon = await startDaemon({ config: "[api.limits]\nfirst_bytes_timeout_ms = 200\n" });
  const startMs = performance.now();
  const socket = connect(daemon.port, "127.0.0.1");
  await nextEvent(socket, "close");
  t.true(performance.now() - startMs < 5_000);
});
