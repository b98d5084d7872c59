// kafkajs behind the JSON lines that program.py describes.
//
// kafkajs itself has gzip. Snappy is its own plug-in; those for LZ4 and Zstandard compile native code
// from the network, so the two are plugged in here over packages that come ready.
// A consumer of kafkajs is always in a group, so each reading makes a group of its own.

const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const readline = require('node:readline')
const snappy = require('kafkajs-snappy')
const zstd = require('@bokuweb/zstd-wasm')

const DEADLINE_MS = 90_000
// Nobody is dead, and no broker gone, because the machine is slow.
const SESSION_MS = 300_000
const CONNECT_MS = 60_000
const NONE_OF_KAFKAS = -1
const TOPIC_ALREADY_EXISTS = 36

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: data => lz4.decompressFrame(data),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async data => Buffer.from(zstd.decompress(data)),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = data => (data === null || data === undefined ? null : data.toString('base64'))
const connect = asked =>
  new Kafka({
    brokers: asked.servers.split(','),
    connectionTimeout: CONNECT_MS,
    logLevel: logLevel.NOTHING,
  })

const headersOf = pairs => {
  const headers = {}
  for (const [name, value] of pairs) (headers[name] ??= []).push(bytes(value))
  return headers
}

const pairsOf = headers =>
  Object.entries(headers).flatMap(([name, values]) =>
    [values].flat().map(value => [name, text(value)]),
  )

async function create({ topic, partitions, configs, ...asked }) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  const admin = connect(asked).admin()
  await admin.connect()
  try {
    const made = await admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }],
    })
    return made ? {} : { code: TOPIC_ALREADY_EXISTS, message: 'kafkajs says false' }
  } finally {
    await admin.disconnect()
  }
}

let kept

async function produce(asked) {
  await open(asked)
  try {
    return await send(asked)
  } finally {
    await close()
  }
}

async function open({ idempotent, ...asked }) {
  const createPartitioner = Partitioners.DefaultPartitioner
  kept = connect(asked).producer({ createPartitioner, idempotent })
  await kept.connect()
  return {}
}

async function close() {
  await kept.disconnect()
  return {}
}

async function send({ topic, partition, codec, acks, records }) {
  const messages = records.map(record => ({
    key: bytes(record.key),
    value: bytes(record.value),
    headers: headersOf(record.headers),
    timestamp: String(record.timestamp),
    ...(partition === null ? {} : { partition }),
  }))
  const done = await kept.send({ topic, messages, acks, compression: CODECS[codec] })
  return { places: placesOf(done) }
}

// kafkajs tells where a batch begins, not which record went where: one place for each batch.
const placesOf = done => done.map(each => [each.partition, Number(each.baseOffset)])

function consume({ partition, start, ...asked }) {
  const groupId = `reads-${asked.topic}-${process.hrtime.bigint()}`
  const isWanted = record => record.partition === partition && record.offset >= start
  const seek = consumer => consumer.seek({ topic: asked.topic, partition, offset: String(start) })
  return read({ ...asked, groupId, isWanted, seek, autoCommit: false })
}

function group({ group: groupId, ...asked }) {
  return read({ ...asked, groupId, isWanted: () => true, seek: () => {}, autoCommit: true })
}

async function read({ topic, count, groupId, isWanted, seek, autoCommit, ...asked }) {
  const consumer = connect(asked).consumer({ groupId, maxWaitTimeInMs: 100, sessionTimeout: SESSION_MS })
  const records = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      setTimeout(resolve, DEADLINE_MS).unref()
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      const eachMessage = async ({ partition, message }) => {
        const record = seen(partition, message)
        if (isWanted(record)) records.push(record)
        if (records.length >= count) resolve()
      }
      consumer.run({ autoCommit, eachMessage }).then(() => seek(consumer), reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return { records }
}

const seen = (partition, message) => ({
  partition,
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
  key: text(message.key),
  value: text(message.value),
  headers: pairsOf(message.headers),
})

// What failed for good is wrapped; Kafka's own answer lies within.
function refusal(error) {
  const causes = [error]
  for (const each of causes) causes.push(...[each.cause, ...(each.errors ?? [])].filter(Boolean))
  const found = causes.find(each => typeof each.code === 'number')
  return { code: found ? found.code : NONE_OF_KAFKAS, message: String((found ?? error).stack) }
}

async function main() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: verb, ...asked } = JSON.parse(line)
    const answer = await { create, produce, open, send, close, consume, group }[verb](asked).catch(refusal)
    process.stdout.write(`${JSON.stringify(answer)}\n`)
  }
}

main()
