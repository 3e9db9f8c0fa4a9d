// Follows a gateway with an EventSource that is not Skald's: prints the data of each
// fact on a line of its own, and what happens to the connection on stderr.
//
//   node follow.js URL [CURSOR]
//
// An EventSource resumes by itself, with the last id. A cursor to begin with is sent as
// Last-Event-ID too, with the first request: in the URL it would be sent again beside
// a later id, and the two would disagree.
import { EventSource } from 'eventsource'

const [url, cursor] = process.argv.slice(2)
let first = true
const source = new EventSource(url, {
  fetch: (input, init) => {
    const headers = { ...init.headers }
    if (first && cursor !== undefined) headers['Last-Event-ID'] = cursor
    first = false
    return fetch(input, { ...init, headers })
  },
})
source.onopen = () => console.error('open')

const types = [
  'turn_started', 'turn_ended', 'input_required', 'input_resolved', 'activity_changed', 'runtime_resolved',
]
for (const type of types) source.addEventListener(type, (e) => console.log(e.data))
// A fact of type error has data; what the EventSource says of its connection has none.
source.addEventListener('error', (e) => {
  if (e.data !== undefined) console.log(e.data)
  else console.error('lost', e.code ?? '', source.readyState === EventSource.CLOSED ? 'for good' : '')
})
source.addEventListener('stream_error', (e) => console.error('stream_error', e.data))
