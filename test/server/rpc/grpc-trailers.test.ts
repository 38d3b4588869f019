/** Large errors in gRPC's trailers: always a status, and as much of the payload as fits. */
import { ConnectError, Code } from "@connectrpc/connect";
import { setTrailerStatus, findTrailerError } from "@connectrpc/connect/protocol-grpc";
import test from "ava";
import fc from "fast-check";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { connectErrorOf, svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { fitTrailers, maxStatusBytes } from "../../../src/server/rpc/grpc-trailers.ts";

const sha256 = "0123456789abcdef".repeat(4);

/** The error that a gRPC client reads, and the size of its headers in bytes. */
function sent(error: ConnectError): { error: ConnectError; bytes: number } {
  const trailers = setTrailerStatus(new Headers(), error);
  const bytes = [...trailers].reduce((sum, [name, value]) => sum + name.length + value.length + 32, 0);
  return { error: findTrailerError(trailers)!, bytes };
}

function payloadSent(error: SvcError): Record<string, unknown> {
  const told = sent(connectErrorOf(error, "grpc"));
  if (told.bytes > maxStatusBytes) throw new Error(`${told.bytes} bytes of trailers`);
  return svcErrorOf(told.error).payload as Record<string, unknown>;
}

const invalid = (count: number, description: string): SvcError =>
  new SvcError("invalid_request", "no", {
    payload: { violations: Array.from({ length: count }, (_, i) => ({ field: `jobs[${i}]`, description })) },
  });

test("an error that fits is sent unchanged", (t) => {
  const error = connectErrorOf(invalid(20, "too long"));
  t.is(fitTrailers(error), error);
  t.true(sent(error).bytes < maxStatusBytes);
});

test("other protocols send the complete error", (t) => {
  const licenses = [{ name: "LICENSE", text: "x".repeat(65_536), sha256 }];
  const error = new SvcError("license_required", "read it", { payload: { licenses } });
  for (const protocolName of [undefined, "connect", "grpc-web"]) {
    t.like(svcErrorOf(connectErrorOf(error, protocolName)).payload, { licenses });
  }
});

test("texts are truncated to the same length; names and hashes stay complete", (t) => {
  for (const count of [1, 2, 16]) {
    const licenses = Array.from({ length: count }, (_, i) => ({
      name: `LICENSE.${i}`,
      text: `${"x".repeat(65_535)}${i}`,
      sha256,
    }));
    const payload = payloadSent(new SvcError("license_required", "read it", { payload: { licenses } }));
    const length = { 1: 4096, 2: 2048, 16: 128 }[count]!;
    t.like(payload, {
      licenses: licenses.map(({ name }) => ({ name, sha256, text: `${"x".repeat(length - 1)}…` })),
    });
  }
});

test("a character is not split", (t) => {
  const text = `${"x".repeat(4094)}${"😀".repeat(5_000)}`;
  const licenses = [{ name: "LICENSE", text, sha256 }];
  const payload = payloadSent(new SvcError("license_required", "read it", { payload: { licenses } }));
  t.like(payload, { licenses: [{ text: `${"x".repeat(4094)}…` }] });
});

test("a list that is too long is reduced to its first entries", (t) => {
  const { violations } = payloadSent(invalid(64, "d".repeat(140))) as { violations: { field: string }[] };
  t.deepEqual(
    violations.map(({ field }) => field),
    Array.from({ length: 32 }, (_, i) => `jobs[${i}]`),
  );
  const ids = Array.from({ length: 5_000 }, (_, i) => `job-${i}`);
  const error = new SvcError("job_owned", "no", { payload: { ids, managedBy: "panel" } });
  t.like(payloadSent(error), { ids: ids.slice(0, 32), managedBy: "panel" });
});

test("a long message is truncated after its beginning", (t) => {
  const error = new SvcError("not_found", `no ${"é".repeat(10_000)}`);
  const told = sent(connectErrorOf(error, "grpc"));
  t.true(told.bytes <= maxStatusBytes);
  t.is(told.error.rawMessage, `no ${"é".repeat(252)}…`);
  t.is(svcErrorOf(told.error).reason, "not_found");
});

test("an error that is not svc's keeps its code", (t) => {
  const value = { reason: "x".repeat(10_000) };
  const foreign = new ConnectError("no", Code.DataLoss, undefined, []);
  foreign.details = [{ type: ErrorDetailSchema.typeName, value: new Uint8Array(10_000) }];
  for (const error of [
    foreign,
    new ConnectError("no", Code.DataLoss, undefined, [{ desc: ErrorDetailSchema, value }]),
  ]) {
    const told = sent(fitTrailers(error));
    t.is(told.error.code, Code.DataLoss);
    t.true(told.bytes <= maxStatusBytes);
  }
});

test("any error fits", (t) => {
  const text = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 40 }),
    fc
      .tuple(fc.constantFrom("a", "ü", "漢", "😀"), fc.nat(70_000))
      .map(([character, n]) => character.repeat(n)),
  );
  const error = fc.record({
    message: text,
    licenses: fc.array(fc.record({ name: text, text, sha256: text }), { maxLength: 20 }),
    permissions: fc.array(text, { maxLength: 20 }),
  });
  t.notThrows(() =>
    fc.assert(
      fc.property(error, ({ message, ...payload }) => {
        const told = sent(connectErrorOf(new SvcError("license_required", message, { payload }), "grpc"));
        return (
          told.bytes <= maxStatusBytes &&
          told.error.code === Code.FailedPrecondition &&
          svcErrorOf(told.error).reason === "license_required"
        );
      }),
      { numRuns: 60 },
    ),
  );
});
