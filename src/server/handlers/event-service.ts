/** EventService: one domain call per method. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { EventSchema, EventService } from "../../../gen/svc/v1/event_pb.ts";
import { invalidField } from "../../errors.ts";
import {
  maySee,
  type EventLog,
  type HeldEvent,
  type NodeEvent,
} from "../../observability/events/event-log.ts";
import { userOf } from "../rpc/user-context.ts";

export function createEventService(log: EventLog): ServiceImpl<typeof EventService> {
  return {
    streamEvents: async function* ({ kinds, appId, ...start }, context) {
      const user = userOf(context);
      if (start.past && start.after !== "") throw invalidField("past", "cannot be combined with `after`");
      const chosen = new Set(kinds);
      const matches = (event: NodeEvent): boolean =>
        maySee(event, user) &&
        (appId === "" || event.appId === appId) &&
        (chosen.size === 0 || chosen.has(event.kind) || chosen.has(event.kind.split(".", 1).join("")));
      const mayHearOf = (owner: number | undefined): boolean =>
        user.root || owner === undefined || owner === user.uid;
      for await (const event of log.follow(start, matches, context.signal, mayHearOf)) yield view(event);
    },
  };
}

function view(event: HeldEvent): MessageInitShape<typeof EventSchema> {
  const { cursor, atMs, kind, appId = "", subject = "", state = "", message = "", owner, status } = event;
  return {
    ...{ cursor, kind, appId, subject, state, message },
    time: timestampFromMs(atMs),
    ...(owner !== undefined && { owner }),
    ...(status !== undefined && { status }),
  };
}
