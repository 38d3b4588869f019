/**
 * A process that appends records to an audit log, and prints how many are durable. Arguments: store directory, count
 * (0: until killed).
 */
import { AuditTrail } from "../../../../src/observability/audit/audit-trail.ts";
import { openStore } from "../../../store/support/temporary-store.ts";
import { auditedCall } from "./calls.ts";

const [dir = "", count = "0"] = process.argv.slice(2);
await using store = await openStore({ dir });
const trail = new AuditTrail({ store, log: console, now: Date.now, userName: () => Promise.resolve("") });
const limit = Number(count) || Number.POSITIVE_INFINITY;
for (let n = 0; n < limit;) {
  for (let k = 0; k < 5 && n < limit; k++) trail.append(auditedCall(n++, { requestId: `${process.pid}` }));
  await trail.flush();
  if (trail.lost > 0) throw new Error(`${trail.lost} records were lost`);
  process.stdout.write(`${n}\n`);
}
