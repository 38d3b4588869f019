/** An invalid page token is the caller's mistake, for every list with pages. */
import { getOption, hasOption, type DescService } from "@bufbuild/protobuf";
import test from "ava";
import { rules } from "../../gen/svc/v1/rules_pb.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { sampleMessage } from "../support/sample-message.ts";

const paged = [...new Set(routes.map(({ method }) => method))].filter(
  ({ input }) => input.field["pageToken"] !== undefined,
);

test("every page token has a maximum length, and every list with one returns the next page's token", (t) => {
  t.true(paged.length >= 5);
  for (const method of paged) {
    const field = method.input.field["pageToken"];
    const length = field && hasOption(field, rules) ? getOption(field, rules).maxLen : undefined;
    t.true(length !== undefined && length > 0 && length <= 16_384, method.name);
    t.truthy(method.output.field["nextPageToken"], method.name);
  }
});

const damaged = ["nonsense", "-1", "0", "1e9", "9".repeat(40), "\u{0}", "é", "%", "x".repeat(64)];

test("a damaged page token is an invalid request that names the field", async (t) => {
  await using daemon = await startDaemon();
  let answered = 0;
  for (const method of paged) {
    const service: DescService = method.parent;
    const client = daemon.client(service) as Record<string, (request: object) => Promise<unknown>>;
    for (const token of damaged) {
      const request = Object.assign(sampleMessage(method.input, { path: "/" }), { pageToken: token });
      const error = await errorOf(client[method.localName]!(request));
      if (error.reason === "not_implemented") continue;
      answered++;
      t.is(error.reason, "invalid_request", `${method.name}: ${JSON.stringify(token)}`);
      t.true(JSON.stringify(error).includes("page_token"), `${method.name}: ${JSON.stringify(token)}`);
    }
  }
  t.true(answered >= 2 * damaged.length);
});
