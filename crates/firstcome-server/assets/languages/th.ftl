join-title = คุณกำลังจะเข้าคิว
join-lead = ผู้เข้าชมจะได้เข้าตามลำดับที่มาถึง
join-button = เข้าคิว
scheduled-title = ยังไม่เปิด
scheduled-lead = ที่ของคุณถูกเก็บไว้ เมื่อเปิดแล้วจะได้เข้าตามลำดับ
waiting-title = คุณอยู่ในคิว
waiting-lead = ผู้เข้าชมจะได้เข้าตามลำดับที่มาถึง
almost-title = ใกล้ถึงแล้ว
almost-lead = คุณคือคนถัดไป โปรดเปิดหน้านี้ค้างไว้
paused-title = คิวหยุดชั่วคราว
paused-lead = ผู้จัดหยุดให้เข้าชั่วคราว ที่ของคุณยังอยู่
admitted-title = ถึงคิวของคุณแล้ว
admitted-lead = โปรดเข้าก่อนหมดเวลา
admitted-button = เข้า
full-title = คิวเต็ม
full-lead = โปรดลองใหม่อีกครั้งในอีกสักครู่
expired-title = ที่ของคุณหมดอายุแล้ว
expired-lead = หน้านี้ขาดการติดต่อนานเกินไป หรือการเข้าชมของคุณสิ้นสุดแล้ว
left-title = คุณออกจากคิวแล้ว
left-lead = ที่ของคุณเป็นของคนถัดไปแล้ว
over-title = คิวนี้ปิดแล้ว
over-lead = ผู้จัดปิดคิวแล้ว ไม่มีใครได้เข้าอีก
lost-title = ขาดการเชื่อมต่อ
lost-lead = การเชื่อมต่อหลุด ที่ของคุณยังอยู่ หน้านี้จะลองใหม่เอง
cookies-title = โปรดอนุญาตคุกกี้
cookies-lead = ที่ของคุณเก็บไว้ในคุกกี้ แต่เบราว์เซอร์ไม่ได้เก็บ โปรดอนุญาตคุกกี้ของเว็บไซต์นี้แล้วเข้าคิวใหม่
rejoin-button = เข้าคิวใหม่
ahead = { $count ->
    [0] ไม่มีใครอยู่ข้างหน้าคุณ
   *[other] มี { $count } คนอยู่ข้างหน้าคุณ
}
wait-label = เวลารอโดยประมาณ
wait-soon = ไม่ถึงหนึ่งนาที
wait-minutes = { $to ->
    [1] ประมาณ { $to } นาที
   *[other] { $from }–{ $to } นาที
}
wait-hours = { $to ->
    [1] ประมาณ { $to } ชั่วโมง
   *[other] { $from }–{ $to } ชั่วโมง
}
wait-unknown = ยังไม่ทราบ
number-label = หมายเลขของคุณ
progress-label = ความคืบหน้าตั้งแต่เข้าคิว
opens-label = เปิดในอีก
ends-label = เวลาที่เหลือ
updated-label = อัปเดตล่าสุด
kept = ที่ของคุณยังอยู่แม้โหลดหน้านี้ใหม่หรือปิดหน้านี้
check-button = ตรวจสอบตอนนี้
auto-button = อัปเดตอัตโนมัติ
leave-button = ออกจากคิว
move-title = ทำต่อบนอุปกรณ์อื่น
move-lead = เปิดลิงก์นี้บนอุปกรณ์อื่น ลิงก์นี้คือที่ของคุณ อย่าให้ใครเห็น
soldout-title = หมดแล้ว
soldout-lead = แจกไปครบทั้งหมดแล้ว
early-title = ยังไม่เปิด
early-lead = คุณรับได้ตั้งแต่เวลาเปิด หน้านี้จะเปิดเอง
claim-title = คุณรับได้แล้ว
claim-lead = รับของคุณตอนนี้ คนละหนึ่งรายการ
claim-button = รับเลย
claimed-title = เป็นของคุณแล้ว
claimed-lead = โปรดจดรหัสนี้ไว้ หน้านี้จะแสดงรหัสอีกครั้งในเบราว์เซอร์นี้
ended-title = สิ้นสุดแล้ว
ended-lead = ไม่สามารถรับอะไรที่นี่ได้อีก
serial-label = หมายเลขลำดับของคุณ
code-label = รหัสของคุณ
remaining = { $count ->
    [0] ไม่เหลือแล้ว
   *[other] เหลือ { $count }
}
language-label = ภาษา
