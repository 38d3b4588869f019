/** An exception of a handler ends only its own call, over every protocol. */
import test from "ava";
import type { DescMethod } from "@bufbuild/protobuf";
import { methodPolicies } from "../../../gen/svc/v1/methods.ts";
import { services } from "../../../gen/svc/v1/services.ts";
import type { BoundService } from "../../../src/server/rpc/bound-service.ts";
import { isCallable, rawCall, rawProtocols } from "../../support/raw-call.ts";
import { sampleMessage, type SampleValues } from "../../support/sample-message.ts";
import { rest } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";
import { bindService } from "../../support/bind-service.ts";

const secret = "/var/lib/svc/svc.db";
const ways: Readonly<Record<string, (method: DescMethod) => unknown>> = {
  throws: () => {
    throw new Error(secret);
  },
  "throws a value that is not an error": () => {
    // eslint-disable-next-line @typescript-eslint/only-throw-error -- whatever a library may throw
    throw null;
  },
  "fails later": ({ methodKind }) =>
    methodKind === "server_streaming" || methodKind === "bidi_streaming"
      ? failingStream()
      : Promise.resolve().then(fail),
};

/** Signing in to the page has its own rules before any handler. */
function takesTokens({ parent, name }: DescMethod): boolean {
  const policies: Readonly<Record<string, { readonly access: string } | undefined>> = methodPolicies;
  return !["PEER", "CODE"].includes(policies[`${parent.typeName}/${name}`]?.access ?? "");
}

/** Session IDs have their own format. */
function valuesOf({ name }: DescMethod): SampleValues {
  return name === "EndSession" ? { id: "0123456789ab" } : {};
}

function fail(): never {
  throw new TypeError(secret);
}

// eslint-disable-next-line require-yield -- it fails before
async function* failingStream(): AsyncGenerator<never> {
  await Promise.resolve();
  fail();
}

function throwing(way: (method: DescMethod) => unknown): BoundService[] {
  return services.map((service) => {
    const handlers = service.methods.map((method) => [method.localName, () => way(method)]);
    return bindService(service, Object.fromEntries(handlers) as never);
  });
}

for (const [name, way] of Object.entries(ways)) {
  for (const protocol of rawProtocols) {
    test(`${protocol}: a handler that ${name} is one internal error, in every method`, async (t) => {
      await using door = await openDoor({ services: throwing(way) });
      const target = { port: door.port, headers: { authorization: `Bearer ${door.token}` } };
      let calls = 0;
      for (const method of services.flatMap((service) => service.methods)) {
        if (!isCallable(method, protocol) || !takesTokens(method)) continue;
        const outcome = await rawCall(
          target,
          method,
          protocol,
          sampleMessage(method.input, valuesOf(method)),
        );
        const expected = {
          code: "internal",
          reason: "internal",
          ...(protocol === "rest" && { status: 500 }),
        };
        t.deepEqual(outcome, expected, method.name);
        calls++;
      }
      t.true(calls > 50, String(calls));
      const errors = door.lines.filter(({ level }) => level === "error");
      t.is(errors.length, calls, "each is logged once");
      t.deepEqual(
        door.counts.filter((count) => !count.endsWith(" internal")),
        [],
      );
      t.is((await rest(door, "/healthz", { token: "" })).status, 200);
    });
  }
}
