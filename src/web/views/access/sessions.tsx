import type { Session } from "../../../../gen/svc/v1/session_pb.ts";
import { useAction } from "../../action.ts";
import { useLive } from "../../live.ts";
import { Failure } from "../../parts/failure.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { signOut } from "../../session.ts";
import { accessTexts as labels } from "../../texts/access.ts";
import type { ViewProps } from "../../view-props.ts";

const { sessionColumns: columns } = labels;

/** The open sessions of the signed-in user, each with a button that ends it. */
export function Sessions({ api, node }: Pick<ViewProps, "api" | "node">) {
  const live = useLive(node, [], (signal) => api.sessions.listSessions({}, { signal }), [api]);
  const { busy, failure, perform } = useAction();
  const end = async ({ id, current }: Session): Promise<void> => {
    if (current) return signOut();
    await perform(id, () => api.sessions.endSession({ id }));
    live.reload();
  };
  const all: readonly Column<Session>[] = [
    {
      title: columns.opened,
      kind: "word",
      cell: ({ createdAt, current }) => (
        <>
          <When at={createdAt} /> {current && labels.thisSession}
        </>
      ),
    },
    { title: columns.ends, kind: "word", cell: ({ expiresAt }) => <When at={expiresAt} /> },
    { title: columns.browser, kind: "long", cell: ({ browser }) => <Text of={browser} /> },
    {
      title: columns.end,
      kind: "actions",
      cell: (session) => (
        <button type="button" aria-busy={busy === session.id} onClick={() => void end(session)}>
          {session.current ? labels.signOutHere : labels.endSession}
        </button>
      ),
    },
  ];
  return (
    <section aria-labelledby="sessions">
      <h2 id="sessions">{labels.ownSessions}</h2>
      <Failure message={failure || live.failure} />
      <Table
        label={labels.ownSessions}
        rows={live.value?.sessions}
        keyOf={({ id }) => id}
        none={labels.noSessions}
        columns={all}
      />
    </section>
  );
}
