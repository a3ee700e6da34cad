// A site behind a waiting room: `FIRSTCOME=http://127.0.0.1:8080 FIRSTCOME_KEY=… node site.js`. A proxy before it sends /rooms/sale and /assets/room.* to firstcome.
'use strict';
const express = require('express');
const firstcome = require('./firstcome');
const handoff = require('./handoff');

const site = express();
const { FIRSTCOME, FIRSTCOME_KEY, FAIL_OPEN, GRACE_MS = '30000', PORT = '3000' } = process.env;
site.use(handoff({ service: FIRSTCOME, key: FIRSTCOME_KEY, room: 'sale' }));
site.use(firstcome({ service: FIRSTCOME, key: FIRSTCOME_KEY, room: 'sale', failOpen: FAIL_OPEN === 'yes', graceMs: Number(GRACE_MS) }));
site.use((request, response) => response.send(`welcome, number ${request.firstcome?.number ?? 'unknown'}`));
const server = site.listen(Number(PORT), '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
